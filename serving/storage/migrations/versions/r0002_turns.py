"""Turns of queued jobs, what they will compute, which gateway's client waits for them; which jobs were deleted.

Revision: 2. Down: none; go back by restoring the backup that `longfold db upgrade` made.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("turn", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("work_tokens", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("gateway_id", sa.String(length=40), nullable=False, server_default=""))
    op.drop_index("jobs_by_state", table_name="jobs")
    op.create_index("jobs_by_turn", "jobs", ["state", "lane", "turn", "id"], unique=False)
    op.create_table(
        "deleted_jobs",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("deleted_unix_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
