"""The runs of trials: why one was not started, and one that is taken back while it is looked at."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import recorded_sweep

from hostcore.cli.folder_client import FolderClient
from hostcore.runs.summary import UnknownRun
from hostcore.supervisor.writable import RunUnwritable
from hostcore_sweeps.folder import SweepFolder, TrialPlace
from hostcore_sweeps.spec import Sweep
from hostcore_sweeps.trial_runs import LocalStarts, TrialRuns


@pytest.fixture
def sweep() -> Sweep:
    return recorded_sweep.walk()


@pytest.fixture
def starts(sweep: Sweep, tmp_path: Path) -> LocalStarts:
    """Whose process for trial 0 has ended."""
    folder = SweepFolder(tmp_path / "walk")
    folder.make(sweep, TrialPlace(runs=tmp_path / "runs"))
    made = LocalStarts(folder, sweep, tmp_path / "runs")
    made._processes[0] = subprocess.Popen(["true"])
    made._processes[0].wait()
    return made


def answer(starts: LocalStarts, *codes: str) -> None:
    """Have the process have printed errors."""
    errors = [{"code": code, "message": f"of {code}", "pointer": None, "file": "f", "hint": "h"} for code in codes]
    starts._folder.answer(0).write_text(json.dumps({"errors": errors}))


@pytest.mark.parametrize(
    ("codes", "cause"),
    [
        (["device.busy"], "busy"),
        (["plugin.transient"], "outage"),
        (["worker.died"], "death"),
        (["job.type"], "job"),
        (["job.type", "plugin.transient"], "job"),
    ],
)
def test_why_a_run_was_not_started_says_whether_the_trial_is_to_blame(
    starts: LocalStarts, codes: list[str], cause: str
) -> None:
    answer(starts, *codes)
    refusal = starts.refusal(0)
    assert refusal is not None
    assert (refusal.cause, refusal.message) == (cause, "; ".join(f"of {code}" for code in codes))


def test_run_directories_that_cannot_be_written_are_no_fault_of_a_trial(starts: LocalStarts) -> None:
    answer(starts, "run.unwritable")
    with pytest.raises(RunUnwritable, match=r"of run\.unwritable"):
        starts.refusal(0)


def test_a_run_that_is_taken_back_while_it_is_looked_at_is_absent(
    sweep: Sweep, starts: LocalStarts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TakenBack:
        run_id = "walk-0000"

        def is_over(self) -> bool:
            raise UnknownRun("there is no run 'walk-0000'")

    client: Any = FolderClient(tmp_path / "runs")
    runs = TrialRuns(sweep, client, starts, runs=tmp_path / "runs")
    assert runs.state(0) == "absent"
    monkeypatch.setattr(client, "find", lambda _: TakenBack())
    assert runs.state(0) == "absent"
