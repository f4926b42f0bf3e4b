"""Plugins and data that the runs of jobs used. For jobs that have ended before, they stay unknown."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply it."""
    op.add_column("jobs", sa.Column("used", sa.Text))
    op.create_table(
        "uses",
        sa.Column("run_id", sa.String(128), sa.ForeignKey("jobs.run_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("data", sa.String(256)),
    )
    op.create_table(
        "used_plugins",
        sa.Column("run_id", sa.String(128), sa.ForeignKey("jobs.run_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(256), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("distribution", sa.String(256)),
        sa.Column("version", sa.String(256)),
    )
    op.create_index("ix_uses_data", "uses", ["data", "run_id"])
    op.create_index("ix_used_plugins_name", "used_plugins", ["name", "version", "run_id"])
    op.create_index("ix_used_plugins_distribution", "used_plugins", ["distribution", "version", "run_id"])
