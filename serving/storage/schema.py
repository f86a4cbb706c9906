"""The tables, the same on SQLite and Postgres. Migrations make them; this is what the code reads them by.

Records are kept as JSON in text columns, written in ASCII: Postgres' own JSON refuses characters that a document may
hold. What a query selects by has a column of its own. Times are Unix seconds, and days are days of UTC.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("surface", String(20), nullable=False),
    Column("lane", String(20), nullable=False),
    Column("strategy", String(80), nullable=False),
    Column("state", String(20), nullable=False),
    Column("request", Text, nullable=False),
    Column("background", Boolean, nullable=False),
    Column("attempt", Integer, nullable=False, default=0),
    Column("fence", BigInteger, nullable=False, default=0),
    Column("beat", BigInteger, nullable=False, default=0),
    Column("runner_id", String(80), nullable=False, default=""),
    Column("last_seq", BigInteger, nullable=False, default=0),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    Column("created_unix_s", Double, nullable=False),
    Column("started_unix_s", Double),
    Column("finished_unix_s", Double),
    Column("plan", Text),
    Column("progress", Text),
    Column("result", Text),
    Column("error", Text),
    Column("usage", Text),
    Column("body_sha256", String(64), nullable=False, default=""),
    Column("idempotency_sha256", String(64), nullable=False, default=""),
    Column("reserve_tokens", BigInteger, nullable=False, default=0),
    Column("reserved_day", String(10), nullable=False, default=""),
    Column("turn", BigInteger, nullable=False, default=0),
    Column("work_tokens", BigInteger, nullable=False, default=0),
    Column("gateway_id", String(40), nullable=False, default=""),
    Index("jobs_by_turn", "state", "lane", "turn", "id"),
    Index("jobs_by_strategy", "state", "strategy"),
    Index("jobs_by_owner", "owner", "id"),
    Index("jobs_by_body", "owner", "body_sha256", "id"),
    Index(
        "jobs_once_per_idempotency_key",
        "owner",
        "idempotency_sha256",
        unique=True,
        sqlite_where=text("idempotency_sha256 != ''"),
        postgresql_where=text("idempotency_sha256 != ''"),
    ),
)
"""`reserve_tokens`: what the job asked for. It is held on the key's `reserved_day`; if that is empty, not at all.

`turn` orders the queue of a lane so that owners take turns. `work_tokens`: what the job computes at least.
`gateway_id`: the gateway whose client waits for it, if it ends with its last client.
"""

events = Table(
    "events",
    metadata,
    Column("job_id", String(26), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", String(80), nullable=False),
    Column("key", Text, nullable=False, default=""),
    Column("data", Text, nullable=False),
    Column("created_unix_s", Double, nullable=False),
    PrimaryKeyConstraint("job_id", "seq"),
    Index(
        "events_once_per_key",
        "job_id",
        "key",
        unique=True,
        sqlite_where=text("key != ''"),
        postgresql_where=text("key != ''"),
    ),
)

job_documents = Table(
    "job_documents",
    metadata,
    Column("job_id", String(26), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("text_sha256", String(64), nullable=False),
    PrimaryKeyConstraint("job_id", "text_sha256"),
    Index("job_documents_by_text", "text_sha256"),
)
"""Which texts are still needed: a job's evidence is looked up in its documents after their uploads are deleted."""

deleted_jobs = Table(
    "deleted_jobs",
    metadata,
    Column("job_id", String(26), primary_key=True),
    Column("deleted_unix_s", Double, nullable=False),
)
"""For the runners, whose journals hold completions that belong to these jobs alone."""

files = Table(
    "files",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("purpose", String(40), nullable=False),
    Column("names", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("created_unix_s", Double, nullable=False),
    Column("text_sha256", String(64), nullable=False, default=""),
    Column("document", Text),
    Column("error", Text, nullable=False, default=""),
    Index("files_by_owner", "owner", "id"),
    Index("files_by_sha256", "sha256"),
    Index("files_by_text", "text_sha256"),
)
"""`names`: JSON of the client's name and media type, which may hold any character, and of when the file expires, if it
does, in Unix seconds."""

runners = Table(
    "runners",
    metadata,
    Column("id", String(80), primary_key=True),
    Column("status", Text, nullable=False),
    Column("reported_unix_s", Double, nullable=False),
)

totals = Table(
    "totals",
    metadata,
    Column("name", String(120), nullable=False),
    Column("labels", Text, nullable=False),
    Column("value", Double, nullable=False),
    PrimaryKeyConstraint("name", "labels"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("secret_hmac", LargeBinary, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("models", Text, nullable=False),
    Column("created_unix_s", Double, nullable=False),
    Column("expires_unix_s", Double),
    Column("revoked_unix_s", Double),
    Column("last_used_unix_s", Double),
    Column("requests_per_minute", Integer),
    Column("tokens_per_day", BigInteger),
    Column("rate_full_unix_s", Double, nullable=False, default=0.0),
)
"""`rate_full_unix_s`: when the key's bucket of requests is full again; in the past: it is."""

key_usage = Table(
    "key_usage",
    metadata,
    Column("key_id", String(40), nullable=False),
    Column("day", String(10), nullable=False),
    Column("requests", BigInteger, nullable=False, default=0),
    Column("prompt_tokens", BigInteger, nullable=False, default=0),
    Column("output_tokens", BigInteger, nullable=False, default=0),
    Column("reserved_tokens", BigInteger, nullable=False, default=0),
    PrimaryKeyConstraint("key_id", "day"),
)
