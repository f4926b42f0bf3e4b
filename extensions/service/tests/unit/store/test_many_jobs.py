"""A table with many jobs that have ended or wait: a dispatcher that looks four times a second does not read them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from hostcore_service.store.database import open_database
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs
from hostcore_service.store.leases import Leases

FEW, MANY = 10, 500


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    yield opened
    opened.dispose()


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


@pytest.mark.parametrize(
    "look",
    [
        lambda jobs, _: jobs.leases.claim("a", now=1000, limit=8, local_at_once=4),
        lambda jobs, _: jobs.leases.claim("a", now=1000, limit=8),
        lambda jobs, _: jobs.leases.holders(),
        lambda jobs, _: jobs.leases.forget(["dead"]),
        lambda jobs, job: jobs.add(job, most_open=100),
    ],
    ids=["claim", "claim without a limit", "holders", "forget", "add"],
)
def test_jobs_that_have_ended_are_not_looked_at(
    engine: Engine, a_job: Callable[..., StoredJob], look: Callable[[Jobs, StoredJob], object]
) -> None:
    jobs = Jobs(engine)
    jobs.add(a_job("running", phase="launched", due_ms=2000))
    counts = []
    for begin, end in ((0, FEW), (FEW, MANY)):
        for number in range(begin, end):
            jobs.add(a_job(f"ended-{number}", phase="ended", status="succeeded"))
        added = a_job(f"added-{end}")
        counts.append(steps(engine, partial(look, jobs, added)))
    assert counts[1] < counts[0] + 100


FAR_MS = 1 << 60
WAITING = [
    pytest.param({"launcher": "local"}, id="wait for room on this machine"),
    pytest.param({"launcher": "slurm"}, id="can be started"),
    pytest.param({"launcher": "slurm", "due_ms": FAR_MS}, id="are due later"),
    pytest.param({"launcher": "local", "phase": "launched", "due_ms": FAR_MS}, id="run here"),
    pytest.param({"launcher": "slurm", "phase": "launched", "due_ms": FAR_MS}, id="run elsewhere"),
]


@pytest.mark.parametrize("fields", [*WAITING[:3], WAITING[4]])
@pytest.mark.parametrize(
    "look",
    [
        lambda leases: leases.claim("a", now=1000, limit=2, local_at_once=1),
        lambda leases: leases.claim("a", now=1000, limit=2),
        lambda leases: leases.holders(),
        lambda leases: leases.forget(["dead"]),
    ],
    ids=["claim", "claim without a limit", "holders", "forget"],
)
def test_of_jobs_that_are_open_only_those_are_read_that_can_be_claimed(
    engine: Engine,
    a_job: Callable[..., StoredJob],
    fields: Mapping[str, Any],
    look: Callable[[Leases], object],
) -> None:
    jobs = Jobs(engine)
    jobs.add(a_job("running", launcher="local", phase="launched", due_ms=FAR_MS))
    counts = []
    for begin, end in ((0, FEW), (FEW, MANY)):
        for number in range(begin, end):
            jobs.add(a_job(f"open-{number}", **fields))
        counts.append(steps(engine, partial(look, jobs.leases)))
    assert counts[1] < counts[0] + 150  # two more are held, and are passed over


@pytest.mark.parametrize("fields", WAITING)
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
