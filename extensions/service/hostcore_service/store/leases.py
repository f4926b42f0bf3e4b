"""Leases on jobs: one dispatcher at a time works on a job, for as long as it renews its lease."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, TextClause, and_, case, false, func, select, update

from hostcore_service.store.database import writing
from hostcore_service.store.job import StoredJob, changed, from_row
from hostcore_service.store.tables import HELD, JOBS, LOCAL, OPEN, READY, WAITING
from hostcore_service.store.uses import write_use

LEASE_MS: Final = 60_000
#: Serialises counting the jobs of this machine and claiming one more.
_LOCAL_LOCK: Final = 0x686F7376


class Leases:
    """The leases of the jobs. Every method that changes something is one transaction.

    :param lease_ms: How long a lease lasts after a claim or a renewal.
    """

    def __init__(self, engine: Engine, *, lease_ms: int = LEASE_MS) -> None:
        self._engine = engine
        self.lease_ms = lease_ms

    def claim(self, holder: str, *, now: int, limit: int, local_at_once: int = 0) -> list[StoredJob]:
        """Jobs that are due, which are this holder's from now on.

        :param local_at_once: How many jobs may run on this machine; the others stay queued, first come, first served.
            0: no limit.
        """
        with self._engine.connect() as connection:
            if not self._due(connection, now, limit, local_at_once):
                return []
        claimed = []
        with writing(self._engine) as connection:
            if local_at_once and connection.dialect.name == "postgresql":  # SQLite has one writer at a time anyway
                connection.execute(select(func.pg_advisory_xact_lock(_LOCAL_LOCK)))
            for run_id in self._due(connection, now, limit, local_at_once):
                mine = connection.execute(
                    update(JOBS)
                    .where(JOBS.c.run_id == run_id, _is_due(now))
                    .values(holder=holder, held_until_ms=now + self.lease_ms)
                )
                if mine.rowcount == 1:
                    claimed.append(run_id)
            rows = connection.execute(select(JOBS).where(JOBS.c.run_id.in_(claimed))).mappings()
            return [from_row(dict(row)) for row in rows]

    @staticmethod
    def _due(connection: Connection, now: int, limit: int, local_at_once: int) -> list[str]:
        """The jobs that are due, without those that this machine has no room for."""
        room = max(0, local_at_once - _here(connection, now)) if local_at_once else limit

        def first(condition: TextClause, most: int) -> list[tuple[int, str]]:
            due = (JOBS.c.due_ms <= now, JOBS.c.held_until_ms <= now)
            order = (JOBS.c.due_ms, JOBS.c.submitted_ms)
            found = select(JOBS.c.due_ms, JOBS.c.run_id).where(condition, *due).order_by(*order).limit(most)
            return [(due_ms, run_id) for due_ms, run_id in connection.execute(found)]

        others = first(READY, limit)
        waiting = first(WAITING, min(room, limit)) if room else []
        return [run_id for _, run_id in sorted([*others, *waiting])[:limit]]

    def renew(self, jobs: Sequence[StoredJob], *, now: int) -> None:
        """Renew the leases on jobs, where they are still held."""
        self._set(jobs, {"held_until_ms": now + self.lease_ms})

    def let_go(self, jobs: Sequence[StoredJob], *, now: int) -> None:
        """Release jobs, as they are, for the next holder."""
        self._set(jobs, {"holder": None, "held_until_ms": 0, "due_ms": now})

    def _set(self, jobs: Sequence[StoredJob], changes: Mapping[str, Any]) -> None:
        if not jobs:
            return
        with writing(self._engine) as connection:
            for job in jobs:
                connection.execute(update(JOBS).where(_held(job)).values(changes))

    def holders(self) -> list[str]:
        """The dispatchers that hold jobs."""
        held = (HELD, JOBS.c.phase.in_(OPEN), JOBS.c.holder.is_not(None))
        with self._engine.connect() as connection:
            return list(connection.execute(select(JOBS.c.holder).where(*held).distinct()).scalars())

    def forget(self, holders: Sequence[str]) -> None:
        """End the leases of holders."""
        if not holders:
            return
        with writing(self._engine) as connection:
            connection.execute(
                update(JOBS)
                .where(HELD, JOBS.c.phase.in_(OPEN), JOBS.c.holder.in_(holders))
                .values(holder=None, held_until_ms=0)
            )

    def write(self, job: StoredJob, after: StoredJob, *, now: int) -> bool:
        """Change a job that its holder still holds, and hold it on; whether it does.

        :param after: What it is to be. What differs from ``job`` is written; others may have changed the rest.
        """
        return self._write(job, after, {"held_until_ms": now + self.lease_ms, "updated_ms": now})

    def release(self, job: StoredJob, after: StoredJob, *, now: int, due_ms: int) -> bool:
        """Change a job that its holder still holds, and let go of it until a time; whether it did.

        :param after: See :meth:`write`.
        """
        # A request to cancel it that came meanwhile wants a look at once.
        just_cancelled = JOBS.c.cancel_ms.is_not(None) if job.cancel_ms is None else false()
        due = case((just_cancelled, 0), else_=due_ms)
        free = {"holder": None, "held_until_ms": 0, "due_ms": due, "updated_ms": now}
        return self._write(job, after, free)

    def _write(self, job: StoredJob, after: StoredJob, lease: Mapping[str, Any]) -> bool:
        changes, used = changed(job, after), after.used
        with writing(self._engine) as connection:
            row = {**changes, **lease}
            is_held = connection.execute(update(JOBS).where(_held(job)).values(row)).rowcount == 1
            if is_held and used is not None and "used" in changes:
                write_use(connection, job.run_id, used)
            return is_held


def _here(connection: Connection, now: int) -> int:
    """Count the jobs that run on this machine, or are about to."""
    count = select(func.count()).where(JOBS.c.launcher.in_(LOCAL))
    begun = count.where(JOBS.c.phase.in_(("launching", "launched")))
    claimed = count.where(HELD, JOBS.c.phase == "queued", JOBS.c.held_until_ms > now)
    # In one statement: a job that changes from one to the other is counted once.
    found: int = connection.execute(select(begun.scalar_subquery() + claimed.scalar_subquery())).scalar_one()
    return found


def _held(job: StoredJob) -> ColumnElement[bool]:
    return and_(JOBS.c.run_id == job.run_id, JOBS.c.holder == job.holder)


def _is_due(now: int) -> ColumnElement[bool]:
    return and_(JOBS.c.phase.in_(OPEN), JOBS.c.due_ms <= now, JOBS.c.held_until_ms <= now)
