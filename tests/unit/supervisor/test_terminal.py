"""When a run shows its progress: always, unless the job or ``--quiet`` says that it does not."""

from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.supervisor.plan import RunPlan, make_plan

QUALIFIED = "hostcore-builtin-plugins/terminal"
JSONL: dict[str, Any] = {"use": "jsonl", "path": "events.jsonl"}


def planned(folder: Path, *overrides: str, **keys: Any) -> RunPlan:
    job = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10, **keys}
    return make_plan(job, runs=folder, job_dir=folder, overrides=overrides)


def names(plan: RunPlan) -> list[str]:
    """The reporters, which are the same in the job as recorded, among the selected plugins, and as loaded."""
    found = [one.ref.name for one in plan.reporters]
    assert [one.use.rpartition("/")[2] for one in plan.spec.reporters] == found
    assert [one.ref.name for one in plan.selected if one.ref.kind == "reporter"] == found
    return found


@pytest.mark.parametrize("keys", [{}, {"reporters": []}, {"terminal": True}], ids=str)
def test_a_job_without_reporters_shows_its_progress(keys: dict[str, Any], tmp_path: Path) -> None:
    assert names(planned(tmp_path, **keys)) == ["terminal"]


def test_a_tracker_is_told_beside_the_terminal_and_not_in_its_place(tmp_path: Path) -> None:
    assert names(planned(tmp_path, reporters=[JSONL])) == ["jsonl", "terminal"]


@pytest.mark.parametrize("use", ["terminal", QUALIFIED, {"use": "terminal", "every_seconds": 1}], ids=str)
def test_a_job_that_names_the_terminal_has_that_one_and_no_second(use: Any, tmp_path: Path) -> None:
    plan = planned(tmp_path, reporters=[use, JSONL])
    assert names(plan) == ["terminal", "jsonl"]
    named = use if isinstance(use, dict) else {"use": use}
    assert plan.spec.reporters[0].use == named["use"]
    assert plan.spec.reporters[0].settings == {key: value for key, value in named.items() if key != "use"}


@pytest.mark.parametrize("reporters", [[JSONL], ["terminal", JSONL], [QUALIFIED, JSONL]], ids=str)
def test_a_job_that_turns_it_off_has_none_by_any_name(reporters: list[Any], tmp_path: Path) -> None:
    assert names(planned(tmp_path, reporters=reporters, terminal=False)) == ["jsonl"]
    assert names(planned(tmp_path, "terminal=false", reporters=reporters)) == ["jsonl"]


def test_errors_point_into_the_job_as_it_was_written_also_when_it_is_turned_off(tmp_path: Path) -> None:
    with pytest.raises(Errors) as caught:
        planned(tmp_path, reporters=["terminal", "no-such-reporter"], terminal=False)
    assert [error.pointer for error in caught.value.errors] == ["/reporters/1"]
    with pytest.raises(Errors) as caught:
        planned(tmp_path, reporters=["terminal", {**JSONL, "paht": "x"}], terminal=False)
    assert [error.pointer for error in caught.value.errors] == ["/reporters/1/paht"]


@pytest.mark.parametrize("keys", [{}, {"terminal": False}, {"reporters": ["terminal"]}], ids=str)
def test_a_recorded_job_goes_on_as_it_was(keys: dict[str, Any], tmp_path: Path) -> None:
    plan = planned(tmp_path, **keys)
    again = make_plan(plan.spec.to_json(), runs=tmp_path, job_dir=tmp_path)
    assert (again.spec.reporters, again.spec.terminal) == (plan.spec.reporters, plan.spec.terminal)
