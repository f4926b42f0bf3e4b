"""``hostcore.sweep``: a whole sweep from Python, as in a notebook."""

import sys
from typing import Any

import fork_server
import pytest

import hostcore
from hostcore_hookspecs.errors import HostcoreError

#: That of ``conftest.py``.
Place = Any


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder with a sweep, which is the working directory."""
    for variable in ("HOSTCORE_RUNS_DIR", "HOSTCORE_SWEEPS_DIR", "HOSTCORE_SERVER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(place.path)
    return place


NOTEBOOK = """
import hostcore

told = []
result = hostcore.sweep("sweep.json", on_change=told.append)
assert [row.state for row in result.trials] == ["complete"] * 2
assert (told[0].state, told[-1].state) == ("running", "finished")
assert result.best_trial.number == result.status.best[0]
assert result.best["hyperparams"] == {"lr": result.best_trial.values["/hyperparams/lr"]}
assert {"run_id", "labels"}.isdisjoint(result.best)
shown = result._repr_html_()
assert f"{result.best_trial.number} (best)" in shown
assert shown.count('<svg class="trials"') == 1
assert "<script" not in shown
assert "2 complete" in repr(result)
assert result.importance == {}  # of two trials

again = hostcore.sweep("sweep.json", on_change=told.append)
assert [row.run_id for row in again.trials] == ["walk-0000", "walk-0001"]
"""


def test_a_sweep_is_run_told_of_and_shown(here: Place) -> None:
    here.sweep(limits={"trials": 2, "parallel": 2})
    notebook = [sys.executable, "-c", NOTEBOOK, "sweep"]  # which starts its runs as the command does
    done = fork_server.run(notebook, cwd=here.path, env=here.environment, text=True)
    assert done.returncode == 0, done.stderr
    assert here.run_ids() == ["walk-0000", "walk-0001"]


def test_a_sweep_that_is_no_file_is_checked_like_one(here: Place) -> None:
    with pytest.raises(HostcoreError, match="objective"):
        hostcore.sweep({"job": "job.json", "space": {"/hyperparams/lr": {"uniform": [0, 1]}}})  # type: ignore[operator]
    assert not (here.path / "sweeps").exists()


def test_a_sweep_that_is_not_there_is_shown_in_a_notebook_as_the_command_prints_it(here: Place) -> None:
    with pytest.raises(HostcoreError) as raised:
        hostcore.sweep("nothing.json")  # type: ignore[operator]
    assert raised.value._render_traceback_() == ["there is no such sweep file\n    file: nothing.json"]  # type: ignore[attr-defined]
