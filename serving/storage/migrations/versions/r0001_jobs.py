"""Jobs, events, files, runners, counters, keys and their usage.

Revision: 1. Down: none; go back by restoring the backup that `longfold db upgrade` made.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("secret_hmac", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("models", sa.Text(), nullable=False),
        sa.Column("created_unix_s", sa.Double(), nullable=False),
        sa.Column("expires_unix_s", sa.Double(), nullable=True),
        sa.Column("revoked_unix_s", sa.Double(), nullable=True),
        sa.Column("last_used_unix_s", sa.Double(), nullable=True),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("tokens_per_day", sa.BigInteger(), nullable=True),
        sa.Column("rate_full_unix_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "files",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("purpose", sa.String(length=40), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_unix_s", sa.Double(), nullable=False),
        sa.Column("text_sha256", sa.String(length=64), nullable=False),
        sa.Column("document", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("files_by_owner", "files", ["owner", "id"], unique=False)
    op.create_index("files_by_sha256", "files", ["sha256"], unique=False)
    op.create_index("files_by_text", "files", ["text_sha256"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("surface", sa.String(length=20), nullable=False),
        sa.Column("lane", sa.String(length=20), nullable=False),
        sa.Column("strategy", sa.String(length=80), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("background", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("runner_id", sa.String(length=80), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("created_unix_s", sa.Double(), nullable=False),
        sa.Column("started_unix_s", sa.Double(), nullable=True),
        sa.Column("finished_unix_s", sa.Double(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("usage", sa.Text(), nullable=True),
        sa.Column("body_sha256", sa.String(length=64), nullable=False),
        sa.Column("idempotency_sha256", sa.String(length=64), nullable=False),
        sa.Column("reserve_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reserved_day", sa.String(length=10), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("jobs_by_body", "jobs", ["owner", "body_sha256", "id"], unique=False)
    op.create_index("jobs_by_owner", "jobs", ["owner", "id"], unique=False)
    op.create_index("jobs_by_state", "jobs", ["state", "lane", "id"], unique=False)
    op.create_index("jobs_by_strategy", "jobs", ["state", "strategy"], unique=False)
    op.create_index(
        "jobs_once_per_idempotency_key",
        "jobs",
        ["owner", "idempotency_sha256"],
        unique=True,
        sqlite_where=sa.text("idempotency_sha256 != ''"),
        postgresql_where=sa.text("idempotency_sha256 != ''"),
    )
    op.create_table(
        "key_usage",
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("day", sa.String(length=10), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "day"),
    )
    op.create_table(
        "runners",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reported_unix_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "totals",
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "labels"),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=80), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_unix_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_index(
        "events_once_per_key",
        "events",
        ["job_id", "key"],
        unique=True,
        sqlite_where=sa.text("key != ''"),
        postgresql_where=sa.text("key != ''"),
    )
    op.create_table(
        "job_documents",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("text_sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "text_sha256"),
    )
    op.create_index("job_documents_by_text", "job_documents", ["text_sha256"], unique=False)
