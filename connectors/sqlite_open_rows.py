"""Open rows of a SQLite ledger, found by the partial index on their lease."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from .contract import Row, Scope
from .sqlite_connection import NOW, SQLiteConnection
from .upkeep import OpenCount, OpenPage

OVERDUE = f"state = 0 AND lease_until < {NOW} - ?"


class Place(NamedTuple):
    """Where a page ended."""

    lease_until: int
    row_id: int


def open_rows(
    connection: SQLiteConnection,
    table: str,
    scope: Scope,
    *,
    older_than_seconds: float,
    limit: int,
    after: object | None,
    skip: int,
) -> OpenPage:
    """Read one page."""
    place = after if isinstance(after, Place) else Place(0, 0)
    found = connection.query(
        "SELECT digest, occurrence, owner, payload_hash, payload, lease_until, "
        f"lease_until - {NOW}, {NOW} - created_at, id FROM {table} WHERE {OVERDUE} "
        "AND (lease_until, id) > (?, ?) AND scope = ? AND generation = ? ORDER BY lease_until, id LIMIT ? OFFSET ?",
        (_microseconds(older_than_seconds), *place, scope.name, scope.generation, limit, skip),
    )
    end = Place(found[-1][5], found[-1][8]) if len(found) == limit else None
    return OpenPage([_row(each) for each in found], end)


def count_open(connection: SQLiteConnection, table: str, scope: Scope, *, older_than_seconds: float) -> OpenCount:
    """Count what is overdue, by generation."""
    counts = connection.query(
        f"SELECT COALESCE(SUM(generation = ?), 0), COALESCE(SUM(generation < ?), 0) FROM {table} "
        f"WHERE {OVERDUE} AND scope = ?",
        (scope.generation, scope.generation, _microseconds(older_than_seconds), scope.name),
    )[0]
    return OpenCount(*counts)


def _row(values: tuple[Any, ...]) -> Row:
    digest, occurrence, owner, payload_hash, payload, lease_until, left, age, _ = values
    return Row(digest, False, occurrence, owner, payload_hash, None, lease_until, left / 1e6, age / 1e6, payload)


def _microseconds(seconds: float) -> int:
    return timedelta(seconds=seconds) // timedelta(microseconds=1)
