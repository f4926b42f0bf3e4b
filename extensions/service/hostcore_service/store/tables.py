"""The tables. Times are milliseconds since 1970; JSON is text, so that both databases return what was written."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text, UniqueConstraint

METADATA: Final = MetaData()
#: The phases of jobs that wait or run.
OPEN: Final = ("queued", "launching", "launched")

JOBS: Final = Table(
    "jobs",
    METADATA,
    Column("run_id", String(128), primary_key=True),
    # What engines call it, and ``/train/{job_name}``.
    Column("name", String(63), nullable=False, unique=True),
    # The job as resolved: JSON.
    Column("job", Text, nullable=False),
    Column("trainer", String(256), nullable=False),
    Column("launcher", String(256), nullable=False),
    Column("owner", String(256)),
    # Who submitted it, by which route, and with which ``Idempotency-Key`` and body (SHA-256).
    Column("principal", String(256), nullable=False),
    Column("route", String(16), nullable=False),
    Column("idempotency_key", String(255)),
    Column("request_sha256", String(64)),
    # ``queued``, ``launching``, ``launched``, ``ended``: what is to be done about it.
    Column("phase", String(16), nullable=False),
    # One of hostcore.runs.summary.STATUSES: what users see.
    Column("status", String(16), nullable=False),
    # Why; a sentence.
    Column("detail", Text, nullable=False),
    # The newest launch: its id, its number, and the launcher's handle (JSON).
    Column("launch_id", String(160), nullable=False),
    Column("launches", Integer, nullable=False),
    Column("handle", Text),
    # How often in a row its launcher did not answer.
    Column("failures", Integer, nullable=False),
    Column("cancel_reason", Text),
    Column("cancel_ms", BigInteger),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("max_steps", BigInteger, nullable=False),
    Column("exit_code", BigInteger),
    Column("submitted_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("ended_ms", BigInteger),
    # Its last sign of life.
    Column("seen_ms", BigInteger),
    Column("updated_ms", BigInteger, nullable=False),
    # Who holds its lease, until when, and when the job is due again. Databases have the first names.
    Column("attendant", Text, key="holder"),
    Column("attended_until_ms", BigInteger, key="held_until_ms", nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    UniqueConstraint("principal", "idempotency_key", name="uq_jobs_idempotency"),
)

#: The labels of jobs, to find them by.
LABELS: Final = Table(
    "labels",
    METADATA,
    Column("run_id", String(128), ForeignKey("jobs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("key", String(256), primary_key=True),
    Column("value", Text, nullable=False),
)

Index("ix_labels", LABELS.c.key, LABELS.c.run_id)
Index("ix_jobs_newest", JOBS.c.submitted_ms, JOBS.c.run_id)
Index("ix_jobs_status", JOBS.c.status, JOBS.c.submitted_ms, JOBS.c.run_id)
Index("ix_jobs_due", JOBS.c.phase, JOBS.c.due_ms)
