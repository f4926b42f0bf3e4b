"""The jobs: recorded once, found, listed, and attended to by one process at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    case,
    exists,
    false,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from hostcore.job.names import BUILTIN
from hostcore.service.store.job import ListedJob, StoredJob, from_row, listed, to_row
from hostcore.service.store.tables import JOBS, LABELS
from hostcore_hookspecs.errors import HostcoreError

LEASE_MS: Final = 60_000
#: Serialises counting the open jobs and adding one.
_COUNTING_LOCK: Final = 0x686F7375
_OPEN: Final = ("queued", "launching", "launched")
#: What a list shows: all but the jobs, each of which may have a megabyte.
_LISTED: Final = [column for column in JOBS.columns if column.name != "job"]
#: The launchers whose jobs share this machine.
_LOCAL: Final = ("local", f"{BUILTIN}local")


class TooManyJobs(HostcoreError):
    """As many jobs wait or run as may."""

    code = "service.full"
    #: Of the response.
    headers: Final = {"Retry-After": "60"}


class JobExists(HostcoreError):
    """There is a job of this run_id, or of this name."""

    code = "job.exists"


@attrs.frozen(kw_only=True)
class Filter:
    """Which jobs are wanted. What is None does not matter."""

    statuses: Sequence[str] = ()
    trainer: str | None = None
    owner: str | None = None
    #: Labels that the jobs have.
    labels: Sequence[tuple[str, str]] = ()


@attrs.frozen(kw_only=True)
class Place:
    """Behind which job a page begins."""

    submitted_ms: int
    run_id: str


class Jobs:
    """The table of jobs. Every method that changes something is one transaction.

    :param lease_ms: For so long a job belongs to whoever attends to it, unless that renews it.
    """

    def __init__(self, engine: Engine, *, lease_ms: int = LEASE_MS) -> None:
        self._engine = engine
        self.lease_ms = lease_ms

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection

    def add(self, job: StoredJob, *, most_open: int = 0) -> StoredJob:
        """Record a job.

        :param most_open: How many may wait or run at the same time, with this one; 0: no limit.
        :return: The job; or the one that the same principal has recorded with the same idempotency key before.
        :raises JobExists: When there is one of the same run_id or name.
        :raises TooManyJobs: When there is no room for one more.
        """
        try:
            with self._writing() as connection:
                if most_open:
                    _require_room(connection, most_open)
                connection.execute(insert(JOBS).values(to_row(attrs.asdict(job, recurse=False))))
                if labels := job.job.get("labels"):
                    rows = [{"run_id": job.run_id, "key": key, "value": value} for key, value in labels.items()]
                    connection.execute(insert(LABELS), rows)
        except (IntegrityError, TooManyJobs) as error:
            earlier = self.by_key(job.principal, job.idempotency_key) if job.idempotency_key else None
            if earlier is not None:
                return earlier
            raise self._exists(job) if isinstance(error, IntegrityError) else error from None
        return job

    def _exists(self, job: StoredJob) -> JobExists:
        same_run = self.get(job.run_id) is not None
        what = f"a job with the run_id {job.run_id!r}" if same_run else f"a job named {job.name!r}"
        return JobExists(
            f"there is {what} already",
            pointer="/run_id",
            hint="choose another run_id, or leave it out to have one made; to go on with it, resume it",
        )

    def get(self, run_id: str) -> StoredJob | None:
        """The job of a run; None if there is none."""
        return self._one(JOBS.c.run_id == run_id)

    def by_name(self, name: str) -> StoredJob | None:
        """The job that engines know by a name; None if there is none."""
        return self._one(JOBS.c.name == name)

    def by_key(self, principal: str, key: str) -> StoredJob | None:
        """The job that somebody has recorded with an idempotency key; None if there is none."""
        return self._one(and_(JOBS.c.principal == principal, JOBS.c.idempotency_key == key))

    def _one(self, condition: ColumnElement[bool]) -> StoredJob | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(JOBS).where(condition)).mappings().one_or_none()
        return from_row(dict(row)) if row is not None else None

    def page(self, wanted: Filter, *, after: Place | None, limit: int) -> list[ListedJob]:
        """Jobs, newest first."""
        conditions = list(_conditions(wanted))
        if after is not None:
            conditions.append(
                or_(
                    JOBS.c.submitted_ms < after.submitted_ms,
                    and_(JOBS.c.submitted_ms == after.submitted_ms, JOBS.c.run_id < after.run_id),
                )
            )
        newest_first = (JOBS.c.submitted_ms.desc(), JOBS.c.run_id.desc())
        with self._engine.connect() as connection:
            wanted_rows = select(*_LISTED).where(*conditions).order_by(*newest_first).limit(limit)
            rows = connection.execute(wanted_rows).mappings().all()
            labels = _labels_of(connection, [row["run_id"] for row in rows])
        return [listed(dict(row), labels[row["run_id"]]) for row in rows]

    def request_cancel(self, run_id: str, reason: str, *, now: int) -> StoredJob | None:
        """Note that a job is to end; one that has, stays as it is, and the first reason counts.

        :return: The job; None if there is none.
        """
        with self._writing() as connection:
            connection.execute(
                update(JOBS)
                .where(JOBS.c.run_id == run_id, JOBS.c.phase.in_(_OPEN), JOBS.c.cancel_ms.is_(None))
                .values(cancel_reason=reason, cancel_ms=now, due_ms=0, updated_ms=now)
            )
        return self.get(run_id)

    def relaunch(self, job: StoredJob, changes: Mapping[str, Any], *, most_open: int = 0) -> bool:
        """Queue a job that has ended once more; whether this call did it.

        :param most_open: See :meth:`add`.
        :raises TooManyJobs: When there is no room for one more.
        """
        with self._writing() as connection:
            if most_open:
                _require_room(connection, most_open)
            done = connection.execute(
                update(JOBS)
                .where(JOBS.c.run_id == job.run_id, JOBS.c.phase == "ended", JOBS.c.launches == job.launches)
                .values(to_row(changes))
            )
            return done.rowcount == 1

    def claim(self, attendant: str, *, now: int, limit: int, local_at_once: int = 0) -> list[StoredJob]:
        """Jobs that somebody has to look at, which are this attendant's from now on.

        :param local_at_once: How many jobs may run on this machine; the others stay queued, first come, first served.
            0: no limit.
        """
        with self._engine.connect() as connection:
            run_ids = self._due(connection, now, limit, local_at_once)
        if not run_ids:
            return []
        claimed = []
        with self._writing() as connection:
            for run_id in run_ids:
                mine = connection.execute(
                    update(JOBS)
                    .where(JOBS.c.run_id == run_id, _is_due(now))
                    .values(attendant=attendant, attended_until_ms=now + self.lease_ms)
                )
                if mine.rowcount == 1:
                    claimed.append(run_id)
            rows = connection.execute(select(JOBS).where(JOBS.c.run_id.in_(claimed))).mappings()
            return [from_row(dict(row)) for row in rows]

    @staticmethod
    def _due(connection: Connection, now: int, limit: int, local_at_once: int) -> list[str]:
        """The jobs that are due, without those that this machine has no room for."""
        due = _is_due(now)
        local = JOBS.c.launcher.in_(_LOCAL)
        room = limit
        if local_at_once:
            begun = or_(JOBS.c.phase.in_(("launching", "launched")), JOBS.c.attended_until_ms > now)
            here = connection.execute(select(func.count()).where(local, JOBS.c.phase != "ended", begun))
            room = max(0, local_at_once - here.scalar_one())
        waits = and_(local, JOBS.c.phase == "queued", JOBS.c.cancel_ms.is_(None))

        def first(condition: ColumnElement[bool], most: int) -> list[tuple[int, str]]:
            order = (JOBS.c.due_ms, JOBS.c.submitted_ms)
            found = select(JOBS.c.due_ms, JOBS.c.run_id).where(due, condition).order_by(*order).limit(most)
            return [(due_ms, run_id) for due_ms, run_id in connection.execute(found)]

        others = first(not_(waits), limit)
        waiting = first(waits, min(room, limit)) if room else []
        return [run_id for _, run_id in sorted([*others, *waiting])[:limit]]

    def renew(self, jobs: Sequence[StoredJob], *, now: int) -> None:
        """Hold on to jobs, those of them that are still their attendants'."""
        self._set(jobs, {"attended_until_ms": now + self.lease_ms})

    def let_go(self, jobs: Sequence[StoredJob], *, now: int) -> None:
        """Leave jobs, as they are, to whoever comes next."""
        self._set(jobs, {"attendant": None, "attended_until_ms": 0, "due_ms": now})

    def _set(self, jobs: Sequence[StoredJob], changes: Mapping[str, Any]) -> None:
        if not jobs:
            return
        with self._writing() as connection:
            for job in jobs:
                connection.execute(update(JOBS).where(_held_by_its_attendant(job)).values(changes))

    def attendants(self) -> list[str]:
        """Who attends to jobs."""
        held = and_(JOBS.c.phase.in_(_OPEN), JOBS.c.attendant.is_not(None))
        with self._engine.connect() as connection:
            return list(connection.execute(select(JOBS.c.attendant).where(held).distinct()).scalars())

    def forget(self, attendants: Sequence[str]) -> None:
        """End the leases of attendants."""
        if not attendants:
            return
        with self._writing() as connection:
            connection.execute(
                update(JOBS).where(JOBS.c.attendant.in_(attendants)).values(attendant=None, attended_until_ms=0)
            )

    def write(self, job: StoredJob, changes: Mapping[str, Any], *, now: int) -> bool:
        """Change a job that its attendant still holds, and hold it on; whether it does."""
        return self._write(job, {**changes, "attended_until_ms": now + self.lease_ms}, now=now)

    def release(self, job: StoredJob, changes: Mapping[str, Any], *, now: int, due_ms: int) -> bool:
        """Change a job that its attendant still holds, and let go of it until a time; whether it did."""
        # Whoever wanted it cancelled meanwhile has asked for a look at once.
        just_cancelled = JOBS.c.cancel_ms.is_not(None) if job.cancel_ms is None else false()
        due = case((just_cancelled, 0), else_=due_ms)
        return self._write(job, {**changes, "attendant": None, "attended_until_ms": 0, "due_ms": due}, now=now)

    def _write(self, job: StoredJob, changes: Mapping[str, Any], *, now: int) -> bool:
        row = to_row({**changes, "updated_ms": now})
        with self._writing() as connection:
            return connection.execute(update(JOBS).where(_held_by_its_attendant(job)).values(row)).rowcount == 1


def _require_room(connection: Connection, most: int) -> None:
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time anyway
        connection.execute(select(func.pg_advisory_xact_lock(_COUNTING_LOCK)))
    if connection.execute(select(func.count()).where(JOBS.c.phase.in_(_OPEN))).scalar_one() >= most:
        raise TooManyJobs(
            f"{most} jobs wait or run already, which is as many as the operator allows",
            hint="try again when one has ended, or cancel one",
        )


def _held_by_its_attendant(job: StoredJob) -> ColumnElement[bool]:
    return and_(JOBS.c.run_id == job.run_id, JOBS.c.attendant == job.attendant)


def _is_due(now: int) -> ColumnElement[bool]:
    return and_(JOBS.c.phase.in_(_OPEN), JOBS.c.due_ms <= now, JOBS.c.attended_until_ms <= now)


def _labels_of(connection: Connection, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    labels: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    of_these = select(LABELS).where(LABELS.c.run_id.in_(run_ids)).order_by(LABELS.c.key)
    for run_id, key, value in connection.execute(of_these):
        labels[run_id][key] = value
    return labels


def _conditions(wanted: Filter) -> Iterator[ColumnElement[bool]]:
    if wanted.statuses:
        yield JOBS.c.status.in_(wanted.statuses)
    for name in ("trainer", "owner"):
        if (value := getattr(wanted, name)) is not None:
            yield JOBS.c[name] == value
    for key, value in wanted.labels:
        same = and_(LABELS.c.run_id == JOBS.c.run_id, LABELS.c.key == key, LABELS.c.value == value)
        yield exists().where(same)
