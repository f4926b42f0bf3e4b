"""A table with many jobs that have ended or wait: a dispatcher that looks four times a second does not read them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event

from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs

FEW, MANY = 10, 200
FAR_MS = 1 << 60
#: What a dispatcher and a request ask of the table.
LOOKS: dict[str, Callable[[Jobs], object]] = {
    "claim": lambda jobs: jobs.leases.claim("a", now=1000, limit=2, local_at_once=1),
    "claim without a limit": lambda jobs: jobs.leases.claim("a", now=1000, limit=2),
    "holders": lambda jobs: jobs.leases.holders(),
    "forget": lambda jobs: jobs.leases.forget(["dead"]),
}
WAITING = [
    pytest.param({"launcher": "local"}, id="wait for room on this machine"),
    pytest.param({"launcher": "slurm"}, id="can be started"),
    pytest.param({"launcher": "slurm", "due_ms": FAR_MS}, id="are due later"),
    pytest.param({"launcher": "slurm", "phase": "launched", "due_ms": FAR_MS}, id="run elsewhere"),
]
HERE = pytest.param({"launcher": "local", "phase": "launched", "due_ms": FAR_MS}, id="run here")
ENDED = pytest.param({"phase": "ended", "status": "succeeded"}, id="have ended")


def steps(engine: Engine, call: Callable[[], object]) -> int:
    """How many instructions SQLite's machine executes during a call."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    def watch(connection: object, *_: object) -> None:
        connection.set_progress_handler(step, 1)  # type: ignore[attr-defined]

    event.listen(engine, "checkout", watch)
    try:
        call()
    finally:
        event.remove(engine, "checkout", watch)
    return count


@pytest.mark.parametrize("fields", [*WAITING, ENDED])
def test_only_those_jobs_are_read_that_can_be_claimed(
    sqlite_engine: Engine, a_job: Callable[..., StoredJob], fields: Mapping[str, Any]
) -> None:
    jobs = Jobs(sqlite_engine)
    jobs.add(a_job("running", launcher="local", phase="launched", due_ms=FAR_MS))
    counts: list[dict[str, int]] = []
    for begin, end in ((0, FEW), (FEW, MANY)):
        for number in range(begin, end):
            jobs.add(a_job(f"job-{number}", **fields))
        calls = {name: partial(look, jobs) for name, look in LOOKS.items()}
        if "status" in fields:
            calls["add"] = partial(jobs.add, a_job(f"added-{end}"), most_open=1000)
        counts.append({name: steps(sqlite_engine, call) for name, call in calls.items()})
    grown = {name: counts[1][name] - counts[0][name] for name in counts[0]}
    assert max(grown.values()) < 500, grown  # a few more are held, and are passed over


@pytest.mark.parametrize("fields", [*WAITING, HERE])
def test_a_server_reads_no_more_of_them_either(
    postgres_engine: Engine, a_job: Callable[..., StoredJob], fields: Mapping[str, Any]
) -> None:
    jobs = Jobs(postgres_engine)
    for number in range(MANY):
        jobs.add(a_job(f"open-{number}", **fields))
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        asked.append((statement, parameters))

    event.listen(postgres_engine, "before_cursor_execute", note)
    jobs.leases.claim("a", now=1000, limit=2, local_at_once=1)
    event.remove(postgres_engine, "before_cursor_execute", note)
    looks = [one for one in asked if one[0].startswith("SELECT jobs.due_ms")]
    with postgres_engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("VACUUM ANALYZE jobs")
        for statement, parameters in looks:
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            ((answer,),) = connection.exec_driver_sql(explain, parameters).all()
            assert rows_read(answer[0]["Plan"]) <= 5, answer
    assert looks


def rows_read(plan: Mapping[str, Any]) -> int:
    """How many rows of tables a plan has read."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if "Relation Name" in plan else 0
    return int(own) + sum(map(rows_read, plan.get("Plans", ())))
