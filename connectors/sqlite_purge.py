"""Delete finished rows of a SQLite ledger whose time is over, and tell of open ones that nobody has settled."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

from .errors import Misconfigured
from .purged import Purged
from .schema import SCOPES_TABLE
from .spoken import spoken
from .sqlite_connection import NOW, SQLiteConnection
from .sqlite_ledger import SQLiteLedger


def purge(ledger: SQLiteLedger, *, older_than: timedelta, page_rows: int = 1000) -> Purged:
    """Delete rows that were finished longer ago than `older_than`, a page of ids at a time, each its own transaction.

    It goes through the whole table, since a file holds few enough rows, and writers get their turn between two pages.
    The file keeps its size, and later rows take the room. Raises `Misconfigured` where a scope keeps its rows for
    longer, or there is no such ledger.
    """
    if not Path(ledger.path).exists():
        raise Misconfigured(f"there is no file {ledger.path}")
    with closing(SQLiteConnection(ledger.path, busy=ledger.busy)) as connection:
        _refuse_early(connection, ledger, older_than)
        limit = f"{NOW} - {older_than // timedelta(microseconds=1)}"
        deleted, last = 0, 0
        while (end := _page_end(connection, ledger.table, last, page_rows)) is not None:
            deleted += connection.execute(
                f"DELETE FROM {ledger.table} WHERE id > ? AND id <= ? AND state = 1 AND finished_at < {limit}",
                (last, end),
            )
            last = end
        return _with_open_rows(connection, ledger.table, limit, deleted)


def _page_end(connection: SQLiteConnection, table: str, last: int, rows: int) -> int | None:
    found = connection.query(
        f"SELECT MAX(id) FROM (SELECT id FROM {table} WHERE id > ? ORDER BY id LIMIT ?)", (last, rows)
    )
    end: int | None = found[0][0]
    return end


def _refuse_early(connection: SQLiteConnection, ledger: SQLiteLedger, older_than: timedelta) -> None:
    there = {name for (name,) in connection.query("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {ledger.table, SCOPES_TABLE} <= there:
        raise Misconfigured(f"{ledger.path} holds no ledger {ledger.table}: name it by --table")
    kept = connection.query(
        f"SELECT DISTINCT scope, retention_seconds FROM {SCOPES_TABLE} WHERE retention_seconds > ?",
        (older_than.total_seconds(),),
    )
    if kept:
        names = ", ".join(f"{scope} ({spoken(timedelta(seconds=seconds))})" for scope, seconds in kept)
        raise Misconfigured(f"older_than={spoken(older_than)} is below what scopes keep: {names}")


def _with_open_rows(connection: SQLiteConnection, table: str, limit: str, deleted: int) -> Purged:
    count, age = connection.query(
        f"SELECT COUNT(*), MAX({NOW} - created_at) FROM {table} WHERE state = 0 AND lease_until < {limit}"
    )[0]
    return Purged(deleted=deleted, old_open_rows=count, oldest_open_seconds=None if age is None else age / 1e6)
