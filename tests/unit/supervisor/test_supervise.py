"""What an attempt does before it has workers."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import orjson

from hostcore.runs.control import request_cancel
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.supervise import supervise
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import Opening, open_run
from hostcore.supervisor.plan import RunPlan


def test_a_run_that_is_cancelled_before_its_first_start_starts_no_worker(plan: Callable[..., RunPlan]) -> None:
    def spawn(rank: int, contract: Path, output: Path) -> NoReturn:
        raise AssertionError("a worker was started")

    made = plan()
    opening = open_run(made)
    assert isinstance(opening, Opening)
    request_cancel(made.directory, opening.attempt, requested_by="user", reason="not needed")
    with Interrupts() as interrupts:
        result = supervise(made, opening, interrupts, spawn=spawn)
    assert (result.status, result.step, result.requested_by) == ("cancelled", 0, "user")
    assert result.reason == "not needed before the run had started"
    assert RunResult.read(made.directory.result) == result
    events = [orjson.loads(line)["event"] for line in made.directory.events.read_bytes().splitlines()]
    assert events == ["run_cancelled"]
    assert not made.directory.lease.exists()
