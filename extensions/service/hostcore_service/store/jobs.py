"""The jobs: recorded once, found, listed, cancelled, and queued again."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from hostcore.runs.used import UseQuery
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.store.database import writing
from hostcore_service.store.job import ListedJob, StoredJob, changed, from_row, listed, to_row
from hostcore_service.store.leases import LEASE_MS, Leases
from hostcore_service.store.tables import JOBS, LABELS, OPEN
from hostcore_service.store.uses import Uses, count, write_use

#: Serialises counting the open jobs and adding one.
_COUNTING_LOCK: Final = 0x686F7375
#: What a list shows: all but the jobs, each of which may have a megabyte.
_LISTED: Final = [column for column in JOBS.columns if column.name != "job"]


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
    """Filter of jobs. Fields that are None match every job."""

    statuses: Sequence[str] = ()
    trainer: str | None = None
    owner: str | None = None
    #: Labels that the jobs have.
    labels: Sequence[tuple[str, str]] = ()
    #: What one of their attempts used.
    use: UseQuery = attrs.field(factory=UseQuery)


@attrs.frozen(kw_only=True)
class ListPosition:
    """Behind which job a page begins."""

    submitted_ms: int
    run_id: str


class Jobs:
    """The table of jobs. Every method that changes something is one transaction.

    :param lease_ms: See :class:`Leases`.
    """

    def __init__(self, engine: Engine, *, lease_ms: int = LEASE_MS) -> None:
        self._engine = engine
        #: Which dispatcher works on which of them.
        self.leases = Leases(engine, lease_ms=lease_ms)

    def add(self, job: StoredJob, *, most_open: int = 0) -> StoredJob:
        """Record a job.

        :param most_open: How many may wait or run at the same time, with this one; 0: no limit.
        :return: The job; or the one that the same principal has recorded with the same idempotency key before.
        :raises JobExists: When there is one of the same run_id or name.
        :raises TooManyJobs: When there is no room for one more.
        """
        try:
            with writing(self._engine) as connection:
                if most_open:
                    _require_room(connection, most_open)
                connection.execute(insert(JOBS).values(to_row(attrs.asdict(job, recurse=False))))
                if job.used:
                    write_use(connection, job.run_id, job.used)
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
        return job_exists(f"with the run_id {job.run_id!r}" if same_run else f"named {job.name!r}")

    def get(self, run_id: str) -> StoredJob | None:
        """The job of a run; None if there is none."""
        return self._one(JOBS.c.run_id == run_id)

    def require_there(self) -> None:
        """See that the table is there.

        :raises SQLAlchemyError: It is not, or the database does not answer.
        """
        with self._engine.connect() as connection:
            connection.execute(select(JOBS.c.run_id).limit(1))

    def run_ids(self) -> set[str]:
        """The runs of all jobs."""
        with self._engine.connect() as connection:
            return set(connection.execute(select(JOBS.c.run_id)).scalars())

    def by_name(self, name: str) -> StoredJob | None:
        """The job that engines know by a name; None if there is none."""
        return self._one(JOBS.c.name == name)

    def by_key(self, principal: str, key: str) -> StoredJob | None:
        """The job that a principal has recorded with an idempotency key; None if there is none."""
        return self._one(and_(JOBS.c.principal == principal, JOBS.c.idempotency_key == key))

    def _one(self, condition: ColumnElement[bool]) -> StoredJob | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(JOBS).where(condition)).mappings().one_or_none()
        return from_row(dict(row)) if row is not None else None

    def page(self, wanted: Filter, *, after: ListPosition | None, limit: int) -> list[ListedJob]:
        """Jobs, newest first.

        :raises InvalidQuery: When the fingerprint of data is the beginning of several.
        """
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
            if wanted.use:
                conditions.append(Uses(connection, wanted.use).matches())
            wanted_rows = select(*_LISTED).where(*conditions).order_by(*newest_first).limit(limit)
            rows = connection.execute(wanted_rows).mappings().all()
            labels = _labels_of(connection, [row["run_id"] for row in rows])
        return [listed(dict(row), labels[row["run_id"]]) for row in rows]

    def unknown(self, wanted: Filter) -> int:
        """Count jobs that are not on the pages but may match: the uses of their runs are unknown.

        :raises InvalidQuery: See :meth:`page`.
        """
        with self._engine.connect() as connection:
            return count(connection, *_conditions(wanted), Uses(connection, wanted.use).unknown())

    def request_cancel(self, run_id: str, reason: str, *, now: int) -> StoredJob | None:
        """Note that a job is to end; one that has, stays as it is, and the first reason counts.

        :return: The job; None if there is none.
        """
        with writing(self._engine) as connection:
            connection.execute(
                update(JOBS)
                .where(JOBS.c.run_id == run_id, JOBS.c.phase.in_(OPEN), JOBS.c.cancel_ms.is_(None))
                .values(cancel_reason=reason, cancel_ms=now, due_ms=0, updated_ms=now)
            )
        return self.get(run_id)

    def remove(self, job: StoredJob) -> None:
        """Forget a job that has ended, unless it was queued once more."""
        with writing(self._engine) as connection:
            same = and_(JOBS.c.run_id == job.run_id, JOBS.c.launch_id == job.launch_id, JOBS.c.phase == "ended")
            connection.execute(delete(JOBS).where(same))

    def relaunch(self, job: StoredJob, again: StoredJob, *, most_open: int = 0) -> bool:
        """Queue a job that has ended once more; whether this call did it.

        :param again: See :meth:`StoredJob.queued_again`.
        :param most_open: See :meth:`add`.
        :raises TooManyJobs: When there is no room for one more.
        """
        with writing(self._engine) as connection:
            if most_open:
                _require_room(connection, most_open)
            still = and_(JOBS.c.run_id == job.run_id, JOBS.c.phase == "ended", JOBS.c.launches == job.launches)
            return connection.execute(update(JOBS).where(still).values(changed(job, again))).rowcount == 1


def job_exists(which: str) -> JobExists:
    """That there is a job already.

    :param which: ``with the run_id 'a'``.
    """
    return JobExists(
        f"there is a job {which} already",
        pointer="/run_id",
        hint="choose another run_id, or leave it out to have one made; to go on with it, resume it",
    )


def _require_room(connection: Connection, most: int) -> None:
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time anyway
        connection.execute(select(func.pg_advisory_xact_lock(_COUNTING_LOCK)))
    if connection.execute(select(func.count()).where(JOBS.c.phase.in_(OPEN))).scalar_one() >= most:
        raise TooManyJobs(
            f"{most} jobs wait or run already, which is as many as the operator allows",
            hint="try again when one has ended, or cancel one",
        )


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
