"""Delete finished rows whose time is over, and tell of open ones that nobody has settled."""

from __future__ import annotations

from datetime import timedelta

from .errors import Misconfigured
from .mysql_connection import MySQLConnection
from .mysql_ledger import MySQLLedger
from .purged import Purged
from .schema import SCOPES_TABLE
from .spoken import spoken


def purge(ledger: MySQLLedger, *, older_than: timedelta, page_rows: int = 1000, pages: int | None = None) -> Purged:
    """Delete rows that were finished longer ago than `older_than`, a page of ids at a time, each its own transaction.

    It goes through the table in the order of insertion and ends where everything is younger, or after `pages`.
    Raises `Misconfigured` where a scope of this ledger keeps its rows for longer.
    """
    connection = MySQLConnection(ledger.server)
    try:
        _refuse_early(connection, older_than)
        limit = f"UTC_TIMESTAMP(6) - INTERVAL {_microseconds(older_than)} MICROSECOND"
        deleted, last = 0, 0
        while pages is None or pages > 0:
            end, oldest_is_due = _page(connection, ledger.table, last, page_rows, limit)
            if not oldest_is_due:
                break
            deleted += connection.execute(
                f"DELETE FROM {ledger.table} WHERE id>{last} AND id<={end} AND state=1 AND finished_at<{limit}"
            )
            last, pages = end, None if pages is None else pages - 1
        return _with_open_rows(connection, ledger.table, limit, deleted)
    finally:
        connection.close()


def _page(connection: MySQLConnection, table: str, last: int, rows: int, limit: str) -> tuple[int, bool]:
    """Return the last id of the next page, and whether its oldest row was inserted early enough to be due."""
    end, due = connection.query(
        f"SELECT MAX(id), COALESCE(MIN(created_at)<{limit}, 0) FROM "
        f"(SELECT id, created_at FROM {table} WHERE id>{last} ORDER BY id LIMIT {int(rows)}) page"
    )[0]
    return int(end or last), due == "1"


def _refuse_early(connection: MySQLConnection, older_than: timedelta) -> None:
    seconds = older_than.total_seconds()
    kept = connection.query(
        f"SELECT DISTINCT scope, retention_seconds FROM {SCOPES_TABLE} WHERE retention_seconds>{seconds}"
    )
    if kept:
        names = ", ".join(
            f"{scope.decode()} ({spoken(timedelta(seconds=int(kept_seconds)))})" for scope, kept_seconds in kept
        )
        raise Misconfigured(f"older_than={spoken(older_than)} is below what scopes keep: {names}")


def _with_open_rows(connection: MySQLConnection, table: str, limit: str, deleted: int) -> Purged:
    count, age = connection.query(
        "SELECT COUNT(*), MAX(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6))) "
        f"FROM {table} WHERE state=0 AND lease_until<{limit}"
    )[0]
    seconds = None if age is None else int(age) / 1e6
    return Purged(deleted=deleted, old_open_rows=int(count), oldest_open_seconds=seconds)


def _microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
