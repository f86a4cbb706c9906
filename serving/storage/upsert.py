"""Insert a row or change the one that is there, in one statement that both databases know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


async def upsert(
    connection: AsyncConnection,
    table: Table,
    key: Mapping[str, Any],
    *,
    put: Mapping[str, Any] | None = None,
    add: Mapping[str, float] | None = None,
) -> None:
    """In the row with this primary key, replace the columns in `put` and increase those in `add`."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement: Any = insert(table).values(**key, **(put or {}), **(add or {}))
    changes = {**(put or {}), **{name: table.c[name] + value for name, value in (add or {}).items()}}
    await connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=changes))
