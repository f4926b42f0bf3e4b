"""What a run needs is brought here before it is opened, unless it is finished."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hostcore.errors import Errors
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.remote.bringing import bring_here


@pytest.fixture
def told() -> list[str]:
    return []


def test_the_plan_knows_where_its_inputs_are(plan: Callable, told: list[str], tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    brought, finished = bring_here(plan(inputs={"model": str(tmp_path / "bert")}), told.append)
    assert brought.inputs == {"model": str(tmp_path / "bert")}
    assert finished is None


def test_a_finished_run_is_told_with_its_result_and_needs_no_inputs(
    plan: Callable, past: Callable, told: list[str], tmp_path: Path
) -> None:
    run = past(plan(inputs={"model": str(tmp_path / "gone")}))
    run.attempt()
    result = run.result("succeeded")
    brought, finished = bring_here(run.plan, told.append)
    assert finished == result
    assert not brought.inputs


def test_a_run_that_needs_what_is_not_there_makes_no_directory(plan: Callable, told: list[str], tmp_path: Path) -> None:
    asked = plan(inputs={"model": str(tmp_path / "gone")})
    with pytest.raises(Errors, match="is not there"):
        bring_here(asked, told.append)
    assert not asked.directory.path.exists()


def test_a_run_that_may_not_be_opened_fetches_nothing(
    plan: Callable, past: Callable, told: list[str], tmp_path: Path
) -> None:
    past(plan()).attempt()
    other = plan(seed=7, inputs={"model": str(tmp_path / "gone")})
    with pytest.raises(RunConflict, match="belongs to another job: /seed"):
        bring_here(other, told.append)
