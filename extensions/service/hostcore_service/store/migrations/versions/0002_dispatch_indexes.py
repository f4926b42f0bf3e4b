"""Indexes for the dispatcher: what it can start, what waits for room, and what is held."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_LOCAL: Final = "('local', 'hostcore-builtin-plugins/local')"
_PARTIAL: Final = {
    "ix_jobs_waiting": (
        ["phase", "due_ms", "submitted_ms"],
        f"phase = 'queued' AND cancel_ms IS NULL AND launcher IN {_LOCAL}",
    ),
    "ix_jobs_ready": (
        ["due_ms", "submitted_ms"],
        f"phase <> 'ended' AND (phase <> 'queued' OR cancel_ms IS NOT NULL OR launcher NOT IN {_LOCAL})",
    ),
    "ix_jobs_held": (["phase", "launcher", "attended_until_ms"], "attended_until_ms > 0"),
}


def upgrade() -> None:
    """Apply it."""
    op.drop_index("ix_jobs_due", "jobs")
    op.create_index("ix_jobs_phase", "jobs", ["phase", "launcher"])
    for name, (columns, condition) in _PARTIAL.items():
        where = sa.text(condition)
        op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)
