"""A disk that fails, and checkpoints that were damaged: the run goes on from what is whole, and ends the same."""

import errno
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import pytest
from ledger import Ledger, job
from thoroughness import points

import hostcore
from hostcore.checkpoints import durable
from hostcore.errors import all_errors
from hostcore.runs.result import RunResult
from hostcore_hookspecs import HostcoreError

HERE = Path(__file__).parent
CALLS = ("open", "write", "fsync", "rename", "unlink", "mkdir", "rmdir")
STEPS = 3
MORE_STEPS = 5


class FailingOs:
    """Stands in for ``os`` in ``durable``: some calls fail. Nothing waits for a disk here.

    :param fails: Told the number of a call, from 1.
    """

    def __init__(self, fails: Callable[[int], bool], code: int) -> None:
        self.calls = 0
        self.failed = 0
        self._fails = fails
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return self._call(name) if name in CALLS else getattr(os, name)

    def _call(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self._fails(self.calls):
                self.failed += 1
                raise OSError(self._code, os.strerror(self._code), str(arguments[0]))
            return getattr(os, name)(*arguments)

        return call


@attrs.frozen
class Outcome:
    """A run that is over."""

    result: RunResult
    events: list[Any]

    def of(self, name: str) -> list[Any]:
        return [event for event in self.events if event.name == name]

    @property
    def not_written(self) -> set[int]:
        """The steps whose checkpoints could not be written, as the warnings say."""
        told = [event.payload for event in self.of("warning")]
        texts = [payload.message for payload in told if payload.code == "checkpoint.not_written"]
        return {int(re.search(r"of step (\d+) could not be written", text)[1]) for text in texts}

    def codes(self) -> set[str]:
        return {event.payload.code for event in self.of("warning")}


@attrs.frozen
class Runs:
    """Runs in this process."""

    folder: Path

    def start(self, run_id: str = "a", **keys: Any) -> Outcome:
        events: list[Any] = []
        return Outcome(hostcore.run(job(run_id, checkpoint_every=1, **keys), on_event=events.append), events)

    def ledger(self, run_id: str = "a") -> Ledger:
        return Ledger(self.folder / run_id)

    def forget(self, run_id: str = "a") -> None:
        shutil.rmtree(self.folder / run_id)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(folder))
        monkeypatch.setenv("PYTHONPATH", str(HERE))
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nobody cuts the power here
        # There are hundreds of runs of a few milliseconds each.
        monkeypatch.setattr("hostcore.supervisor.attempt.supervise.TICK_SECONDS", 0.005)
        yield Runs(folder)


@pytest.fixture(scope="module")
def whole(runs: Runs) -> Ledger:
    """The run that nothing has happened to."""
    assert runs.start("whole", max_steps=MORE_STEPS).result.status == "succeeded"
    return runs.ledger("whole")


def start_on(disk: FailingOs, runs: Runs, code: int, **keys: Any) -> Outcome | None:
    """Run the first steps on a disk that fails; None if the run was refused because of that, before it began."""
    with patch.object(durable, "os", disk):
        try:
            return runs.start(max_steps=STEPS, **keys)
        except HostcoreError as error:
            assert os.strerror(code) in str(error)
            assert not runs.ledger().path.exists()
            return None


def check_what_is_left(runs: Runs, first: Outcome, *, keep: int) -> None:
    """See that a run with errors kept what it had, and said how it ended."""
    ledger = runs.ledger()
    ledger.check_checkpoints(keep=keep)
    missing = first.not_written
    if STEPS in ledger.acknowledged:
        assert first.result.status == "succeeded"
        assert first.result.final_checkpoint == f"checkpoints/step-{STEPS:06d}"
    else:
        missing.add(STEPS)
        assert first.result.status == "failed"
        assert first.result.error.type == "CheckpointError"
        assert "could not be written" in first.result.error.message
    assert ledger.acknowledged | missing == set(range(1, STEPS + 1))
    assert missing or first.codes() <= {"checkpoint.not_removed"}
    assert first.result.step == STEPS


def check_that_it_goes_on(runs: Runs, whole: Ledger, *, keep: int) -> None:
    """Start the run again, with a disk that works, and see that it ends as if nothing had happened."""
    before = max(runs.ledger().acknowledged, default=0)
    again = runs.start(max_steps=MORE_STEPS, keep_checkpoints=keep)
    assert again.result.status == "succeeded"
    resumed = [event.step for event in again.of("run_resumed")]
    assert max(resumed, default=0) >= before  # later: what has reached the disk although the disk said it had not
    ledger = runs.ledger()
    ledger.check_numbers()
    ledger.check_checkpoints(keep=keep)
    ledger.check_digest()
    assert ledger.hidden == []
    assert ledger.losses == whole.losses
    assert ledger.weights == whole.weights


@pytest.mark.parametrize(
    ("code", "length"),
    [(errno.ENOSPC, 1), (errno.ENOSPC, 30), (errno.EIO, 1), (errno.EDQUOT, 30)],
    ids=["ENOSPC once", "ENOSPC for a while", "EIO once", "EDQUOT for a while"],
)
def test_a_call_that_fails_costs_at_most_the_checkpoint_it_belongs_to(
    runs: Runs, whole: Ledger, seed: int, code: int, length: int
) -> None:
    """Any call of any checkpoint of a run, or each third, by the seed; then the run is started again."""
    stride = points(3, long=1)
    number, ends = 1 + seed % stride, []
    while True:
        keep = number % 2 + 1
        disk = FailingOs(lambda count, n=number: n <= count < n + length, code)
        first = start_on(disk, runs, code, keep_checkpoints=keep)
        if not disk.failed:
            break
        try:
            if first is not None:
                check_what_is_left(runs, first, keep=keep)
            check_that_it_goes_on(runs, whole, keep=keep)
        except AssertionError as error:
            raise AssertionError(f"calls {number} to {number + length - 1} failed: {error}") from error
        ends.append(first.result.status if first else "refused")
        runs.forget()
        number += stride
    runs.forget()
    print(f"{number} calls, {ends.count('failed')} of {len(ends)} runs failed")
    assert len(ends) * stride > 90
    assert {"succeeded", "failed"} <= set(ends)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=errno.errorcode.get)
def test_with_require_checkpoints_an_error_fails_the_run_and_keeps_what_it_had(
    runs: Runs, whole: Ledger, seed: int, code: int
) -> None:
    rng = random.Random(seed)
    for number in sorted(rng.sample(range(1, 100), 8)):
        disk = FailingOs(lambda count, n=number: n <= count < n + 60, code)
        first = start_on(disk, runs, code, keep_checkpoints=3, require_checkpoints=True)
        assert disk.failed
        runs.ledger().check_checkpoints(keep=3)
        if first is None:
            assert runs.ledger().acknowledged == set()
        elif first.result.status == "failed":
            assert first.result.error.type == "CheckpointError"
            assert os.strerror(code) in first.result.error.message
            assert first.not_written == set()
        else:
            assert runs.ledger().acknowledged == set(range(1, STEPS + 1)), "only the removal of something failed"
        check_that_it_goes_on(runs, whole, keep=3)
        runs.forget()


def test_what_a_dead_attempt_has_left_and_cannot_be_removed_is_one_clear_error(runs: Runs) -> None:
    runs.start(max_steps=STEPS)
    left = runs.ledger().checkpoints / ".step-000004.attempt-1.tmp"
    left.mkdir()
    (left / "state.json").touch()
    broken = FailingOs(lambda count: True, errno.EROFS)
    with patch.object(durable, "os", broken), pytest.raises(HostcoreError) as caught:
        runs.start(max_steps=MORE_STEPS)
    assert "Read-only file system" in str(caught.value)
    again = runs.start(max_steps=MORE_STEPS)
    assert (again.result.status, again.result.attempt) == ("succeeded", 2), "the refused attempt left no trace"
    assert not left.exists()
    runs.forget()


@pytest.fixture(scope="module")
def finished(runs: Runs, whole: Ledger) -> Path:
    """A run with checkpoints of the steps 1 to 3, to make copies of."""
    assert runs.start("b", max_steps=STEPS).result.status == "succeeded"
    assert runs.ledger("b").steps == [1, 2, 3]
    return (runs.folder / "b").rename(runs.folder / "finished")


@pytest.fixture
def copy(runs: Runs, finished: Path) -> Callable[[], Path]:
    """``copy()``: the folder of the checkpoints of a fresh copy of the run."""

    def make() -> Path:
        shutil.rmtree(runs.folder / "b", ignore_errors=True)
        shutil.copytree(finished, runs.folder / "b")
        return runs.folder / "b" / "checkpoints"

    return make


def files_of(folder: Path, step: int) -> list[Path]:
    """All files of a checkpoint, and its record."""
    inside = sorted(path for path in (folder / f"step-{step:06d}").rglob("*") if path.is_file())
    return [folder / f"step-{step:06d}.json", *inside]


def damages(content: bytes, rng: random.Random) -> Mapping[str, bytes]:
    """What may become of a file: it is cut off somewhere, or a bit is flipped somewhere."""
    size = len(content)
    ends = {0, 1, size // 2, size - 8, size - 1, rng.randrange(size)}
    changed = {f"cut off at {end} of {size}": content[:end] for end in sorted(ends) if 0 <= end < size}
    for place in (0, size - 1, rng.randrange(size), rng.randrange(size)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << rng.randrange(8)
        changed[f"a bit flipped in byte {place} of {size}"] = bytes(flipped)
    return changed


NAMES = [
    "step-000003.json",
    *(
        "host.json",
        "host.safetensors",
        "rank-0.json",
        "rank-0.safetensors",
        "state.json",
        "state.safetensors",
        "model.pt",
    ),
]


def test_there_is_no_other_file_in_a_checkpoint(copy: Callable[[], Path]) -> None:
    assert [path.name for path in files_of(copy(), STEPS)] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_any_damage_of_any_file_is_passed_over_for_the_checkpoint_before(
    runs: Runs, whole: Ledger, copy: Callable[[], Path], seed: int, name: str
) -> None:
    rng = random.Random(seed)
    (number,) = (number for number, path in enumerate(files_of(copy(), STEPS)) if path.name == name)
    for what, content in damages(files_of(copy(), STEPS)[number].read_bytes(), rng).items():
        files_of(copy(), STEPS)[number].write_bytes(content)
        again = runs.start("b", max_steps=MORE_STEPS)
        assert again.result.status == "succeeded", what
        (skipped,) = again.of("checkpoint_skipped")
        assert skipped.payload.path == f"checkpoints/step-{STEPS:06d}", what
        assert skipped.payload.reason, what
        assert [event.step for event in again.of("run_resumed")] == [STEPS - 1], what
        assert runs.ledger("b").losses == whole.losses, what
        assert runs.ledger("b").weights == whole.weights, what
        runs.ledger("b").check_digest()


def damage_all(folder: Path, rng: random.Random) -> None:
    for step in range(1, STEPS + 1):
        path = rng.choice(files_of(folder, step))
        path.write_bytes(rng.choice(list(damages(path.read_bytes(), rng).values())))


def test_when_all_are_damaged_the_run_begins_again_with_a_warning(
    runs: Runs, whole: Ledger, copy: Callable[[], Path], seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        damage_all(copy(), rng)
        again = runs.start("b", max_steps=MORE_STEPS)
        assert [event.payload.path[-1] for event in again.of("checkpoint_skipped")] == ["3", "2", "1"]
        assert again.codes() == {"checkpoint.none"}
        assert again.of("run_resumed") == []
        assert [event.step for event in again.of("metrics")] == list(range(1, MORE_STEPS + 1))
        assert runs.ledger("b").losses == whole.losses
        assert runs.ledger("b").weights == whole.weights


def test_when_all_are_damaged_and_there_must_be_one_nothing_is_started(
    runs: Runs, copy: Callable[[], Path], seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        folder = copy()
        damage_all(folder, rng)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with pytest.raises(HostcoreError, match="no checkpoint") as caught:
            runs.start("b", max_steps=MORE_STEPS, resume_from_checkpoint=True)
        assert [error.pointer for error in all_errors(caught.value)] == ["/resume_from_checkpoint"]
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
