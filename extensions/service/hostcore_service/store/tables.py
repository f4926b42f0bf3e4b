"""The tables. Times are milliseconds since 1970; JSON is text, so that both databases return what was written."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    text,
)

from hostcore.job.names import BUILTIN

METADATA: Final = MetaData()
#: The phases of jobs that wait or run.
OPEN: Final = ("queued", "launching", "launched")
#: The launchers whose jobs share this machine.
LOCAL: Final = ("local", f"{BUILTIN}local")

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
    # What the attempts of its run used: JSON, see hostcore.runs.used. Null while that is not known.
    Column("used", Text),
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

#: What the runs of jobs used from an attempt on, to find them by.
USES: Final = Table(
    "uses",
    METADATA,
    Column("run_id", String(128), ForeignKey("jobs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    # The fingerprint of the training data; empty if they have none, null if that is not known.
    Column("data", String(256)),
)

#: The plugins of :data:`USES`.
USED_PLUGINS: Final = Table(
    "used_plugins",
    METADATA,
    Column("run_id", String(128), ForeignKey("jobs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(256), nullable=False),
    Column("name", String(256), nullable=False),
    # Normalized.
    Column("distribution", String(256)),
    Column("version", String(256)),
)

Index("ix_uses_data", USES.c.data, USES.c.run_id)
Index("ix_used_plugins_name", USED_PLUGINS.c.name, USED_PLUGINS.c.version, USED_PLUGINS.c.run_id)
Index("ix_used_plugins_distribution", USED_PLUGINS.c.distribution, USED_PLUGINS.c.version, USED_PLUGINS.c.run_id)
Index("ix_labels", LABELS.c.key, LABELS.c.run_id)
Index("ix_jobs_newest", JOBS.c.submitted_ms, JOBS.c.run_id)
Index("ix_jobs_status", JOBS.c.status, JOBS.c.submitted_ms, JOBS.c.run_id)
# How many are open, and how many of them are of which launcher.
Index("ix_jobs_phase", JOBS.c.phase, JOBS.c.launcher)

# What dispatchers look for, as conditions that are also those of indexes: a look reads the first of such an index, not
# all that wait. SQLite uses one only for a query that has the same condition, without parameters.
_LOCAL: Final = ", ".join(f"'{name}'" for name in LOCAL)

#: Jobs that wait for room on this machine. Those of other launchers wait in the launchers' engines.
WAITING: Final = text(f"phase = 'queued' AND cancel_ms IS NULL AND launcher IN ({_LOCAL})")
#: All other open jobs: a dispatcher has something to do with them when they are due.
READY: Final = text(f"phase <> 'ended' AND (phase <> 'queued' OR cancel_ms IS NOT NULL OR launcher NOT IN ({_LOCAL}))")
#: Jobs that are held, or whose holder has died: a lease that was given back has the time 0.
HELD: Final = text("attended_until_ms > 0")


def _index_of(condition: TextClause, name: str, *columns: Column[int] | Column[str]) -> None:
    Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


_index_of(WAITING, "ix_jobs_waiting", JOBS.c.phase, JOBS.c.due_ms, JOBS.c.submitted_ms)
_index_of(READY, "ix_jobs_ready", JOBS.c.due_ms, JOBS.c.submitted_ms)
_index_of(HELD, "ix_jobs_held", JOBS.c.phase, JOBS.c.launcher, JOBS.c.held_until_ms)
