"""`benchmarks/resume_proof.py`: what it counts as lost, and that it kills and goes on until the training has ended."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from checkout import ROOT


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module, for four rows in each of two epochs, two in a step."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import resume_proof

    monkeypatch.setattr(resume_proof, "STEPS", 4)
    monkeypatch.setattr(resume_proof, "ROWS", 4)
    yield resume_proof
    del sys.modules["resume_proof"]


def trained(proof: ModuleType, *steps: tuple[int, list[int], float], **others: Any) -> Any:
    made = [{"step": step, "rows": rows, "loss": loss.hex()} for step, rows, loss in steps]
    return proof.Trained(steps=made, **{"failed_starts": 0, "seconds": 10.0, **others})


WHOLE = ((1, [3, 1], 0.4), (2, [0, 2], 0.3), (3, [1, 2], 0.2), (4, [3, 0], 0.1))


def test_steps_that_were_trained_again_to_the_same_end_cost_time_alone(proof: ModuleType) -> None:
    again = trained(proof, *WHOLE[:3], *WHOLE[1:], seconds=14.0, failed_starts=1)
    assert proof.compare(trained(proof, *WHOLE), again) == {
        "failed starts": 1,
        "trained again": 2,
        "rows skipped": 0,
        "rows repeated": 0,
        "other losses": 0,
        "seconds lost": 4.0,
    }


def test_an_order_that_begins_anew_skips_and_repeats_rows_of_its_epoch(proof: ModuleType) -> None:
    """Of the first epoch, row 3 is seen twice, and row 2 never; a step that is never made has no right loss."""
    other = trained(proof, WHOLE[0], (2, [0, 3], 0.5), WHOLE[2])
    found = proof.compare(trained(proof, *WHOLE), other)
    assert {name: found[name] for name in ("rows skipped", "rows repeated", "other losses")} == {
        "rows skipped": 1 + 2,  # with those of the step that was not made
        "rows repeated": 1,
        "other losses": 2,
    }


#: Trains four steps, from the last one that is on the disk; its start fails once, on what it has left.
PROGRAM = """
import sys, time
from pathlib import Path
from resume_proof import note
place = Path(sys.argv[2])
if sys.argv[1] == "prepare":
    sys.exit()
checkpoints = place / "checkpoints"
checkpoints.mkdir(exist_ok=True)
done = sorted(checkpoints.iterdir())
if done and not done[-1].read_text():
    sys.exit("torn")
step = int(done[-1].name) if done else 0
while step < 4:
    step += 1
    torn = step == 2 and not (place / "torn").exists()
    (place / "torn").touch() if torn else None
    (checkpoints / str(step)).write_text("" if torn else "whole")
    note(step, [[step]], 1 / step)
    while torn:
        time.sleep(1)
"""


def test_what_is_killed_is_started_again_and_a_torn_checkpoint_is_removed(
    proof: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setitem(proof.WAYS, "torn", (str(program.with_suffix("")), "checkpoints/*"))
    monkeypatch.setattr(random.Random, "randint", lambda *_: 2)
    place = tmp_path / "place"
    place.mkdir()
    found = proof.train("torn", place, 1, random.Random(0))
    assert [one["step"] for one in found.steps] == [1, 2, 2, 3, 4]
    assert found.failed_starts == 1
