"""The table of jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "jobs",
        sa.Column("run_id", sa.String(128), primary_key=True),
        sa.Column("name", sa.String(63), nullable=False, unique=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("trainer", sa.String(256), nullable=False),
        sa.Column("launcher", sa.String(256), nullable=False),
        sa.Column("owner", sa.String(256)),
        sa.Column("principal", sa.String(256), nullable=False),
        sa.Column("route", sa.String(16), nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("request_sha256", sa.String(64)),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("launch_id", sa.String(160), nullable=False),
        sa.Column("launches", sa.Integer, nullable=False),
        sa.Column("handle", sa.Text),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("cancel_reason", sa.Text),
        sa.Column("cancel_ms", sa.BigInteger),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("max_steps", sa.BigInteger, nullable=False),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("submitted_ms", sa.BigInteger, nullable=False),
        sa.Column("started_ms", sa.BigInteger),
        sa.Column("ended_ms", sa.BigInteger),
        sa.Column("seen_ms", sa.BigInteger),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.Column("attendant", sa.Text),
        sa.Column("attended_until_ms", sa.BigInteger, nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("principal", "idempotency_key", name="uq_jobs_idempotency"),
    )
    op.create_table(
        "labels",
        sa.Column("run_id", sa.String(128), sa.ForeignKey("jobs.run_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", sa.String(256), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_index("ix_labels", "labels", ["key", "run_id"])
    op.create_index("ix_jobs_newest", "jobs", ["submitted_ms", "run_id"])
    op.create_index("ix_jobs_status", "jobs", ["status", "submitted_ms", "run_id"])
    op.create_index("ix_jobs_due", "jobs", ["phase", "due_ms"])
