"""Open rows of a MySQL ledger, found by the index on state and lease."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from .contract import Row, Scope
from .mysql_connection import MySQLConnection
from .mysql_literals import binary, text
from .upkeep import OpenCount, OpenPage

_HEAD = (
    "CONCAT_WS(',',HEX(digest),HEX(owner),COALESCE(HEX(payload_hash),'-'),COALESCE(HEX(occurrence),'-'),lease_until,"
    "TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),TIMESTAMPDIFF(MICROSECOND,created_at,UTC_TIMESTAMP(6)),id)"
)
"""All but the payload in one column: what the driver spends on a row goes by its columns."""


class Place(NamedTuple):
    """Where a page ended: the index goes by lease, then by id."""

    lease_until: str
    row_id: int


def open_rows(
    connection: MySQLConnection,
    table: str,
    scope: Scope,
    *,
    older_than_seconds: float,
    limit: int,
    after: object | None,
    skip: int,
) -> OpenPage:
    """Read one page. It starts at the index entry where the last one ended, not at rows that are done since."""
    behind = ""
    if isinstance(after, Place):
        until = text(after.lease_until)
        behind = f" AND lease_until>={until} AND (lease_until>{until} OR id>{after.row_id})"
    found = connection.query(
        f"SELECT {_HEAD},payload "
        f"FROM {table} FORCE INDEX (open_rows) WHERE {_overdue(older_than_seconds)}{behind} "
        f"AND scope={binary(scope.name.encode())} AND generation={scope.generation} "
        f"ORDER BY lease_until,id LIMIT {int(skip)},{int(limit)}"
    )
    place = None
    if len(found) == limit:
        *_, lease_until, _, _, row_id = found[-1][0].split(",")
        place = Place(lease_until, int(row_id))
    return OpenPage([_row(each) for each in found], place)


def count_open(connection: MySQLConnection, table: str, scope: Scope, *, older_than_seconds: float) -> OpenCount:
    """Count what is overdue, by generation."""
    current, older = connection.query(
        f"SELECT COALESCE(SUM(generation={scope.generation}),0),COALESCE(SUM(generation<{scope.generation}),0) "
        f"FROM {table} FORCE INDEX (open_rows) WHERE {_overdue(older_than_seconds)} "
        f"AND scope={binary(scope.name.encode())}"
    )[0]
    return OpenCount(int(current), int(older))


def _overdue(seconds: float) -> str:
    microseconds = timedelta(seconds=seconds) // timedelta(microseconds=1)
    return f"state=0 AND lease_until<UTC_TIMESTAMP(6)-INTERVAL {microseconds} MICROSECOND"


def _row(values: tuple[Any, ...]) -> Row:
    head, payload = values
    digest, owner, payload_hash, occurrence, lease_until, left, age, _ = head.split(",")
    return Row(
        bytes.fromhex(digest),
        False,
        None if occurrence == "-" else bytes.fromhex(occurrence),
        bytes.fromhex(owner),
        None if payload_hash == "-" else bytes.fromhex(payload_hash),
        None,
        lease_until,
        int(left) / 1e6,
        int(age) / 1e6,
        payload,
    )
