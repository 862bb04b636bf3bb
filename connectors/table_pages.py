"""Read a large table page by page, by a numeric id: `where id > ? order by id limit ?`. Each page stands alone.

So a reader needs no cursor that lives for hours, holds no lock, and goes on where it stopped. Rows with a lower id that
are committed later are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from .contract import Ledger
from .errors import Misconfigured
from .mysql_connection import MySQLConnection
from .mysql_ledger import MySQLLedger
from .mysql_literals import quoted
from .sqlite_connection import NOW, SQLiteConnection
from .sqlite_ledger import SQLiteLedger


class Connection(Protocol):
    """What a page is read over."""

    def query(self, sql: str) -> Sequence[tuple[Any, ...]]: ...

    def close(self) -> None: ...


class Page(NamedTuple):
    """Some rows in one piece. `last_id` is that of the last one looked at, `looked_at` how many that were."""

    last_id: int
    looked_at: int
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PagedTable:
    """Which columns of which rows are read. Names are quoted; values of `columns` and `where` are SQL as it stands.

    `columns` maps a name to the expression that gives it. The id has an index, is unique, and only grows.
    """

    table: str
    columns: Mapping[str, str] = field(hash=False)
    id_column: str = "id"
    where: str | None = None

    def __post_init__(self) -> None:
        if not self.table or not self.id_column or not self.columns:
            raise Misconfigured(f"a table, its id and at least one column have names, not {self!r}")

    @property
    def description(self) -> str:
        """Name what is read, so that two reads can be compared."""
        columns = ", ".join(f"{name}={expression}" for name, expression in self.columns.items())
        return f"{self.table}.{self.id_column}: {columns}{f' where {self.where}' if self.where else ''}"

    def bounds(self, connection: Connection) -> tuple[int, int] | None:
        """Return the lowest and the highest id as they are now, None for an empty table. Raises `Misconfigured`."""
        name = quoted(self.id_column)
        lowest, highest = connection.query(f"SELECT MIN({name}), MAX({name}) FROM {quoted(self.table)}")[0]
        if lowest is None:
            return None
        try:
            return int(lowest), int(highest)
        except ValueError as error:
            raise Misconfigured(f"{self.table}.{self.id_column} holds {lowest!r}: the id must be a number") from error

    def page(self, connection: Connection, *, after: int, rows: int) -> Page | None:
        """Return the next page behind an id; None where there is nothing more.

        Two statements: the first finds where the page ends. So one statement never looks at more than a page, however
        few of its rows are wanted.
        """
        name, table = quoted(self.id_column), quoted(self.table)
        last, looked_at = connection.query(
            f"SELECT MAX({name}), COUNT(*) FROM "
            f"(SELECT {name} FROM {table} WHERE {name}>{int(after)} ORDER BY {name} LIMIT {int(rows)}) page"
        )[0]
        if last is None:
            return None
        wanted = f" AND ({self.where})" if self.where else ""
        found = connection.query(
            f"SELECT {','.join(self.columns.values())} FROM {table} "
            f"WHERE {name}>{int(after)} AND {name}<={int(last)}{wanted} ORDER BY {name}"
        )
        return Page(int(last), int(looked_at), found)


def connect(ledger: Ledger, *, typed: bool = False) -> Connection:
    """Open a connection to a ledger's own database.

    Without `typed` MySQL's numbers and times come as text. Raises `Misconfigured` for a ledger that is no table.
    """
    if isinstance(ledger, MySQLLedger):
        return MySQLConnection(ledger.server, typed=typed)
    if isinstance(ledger, SQLiteLedger):
        return SQLiteConnection(ledger.path, busy=ledger.busy)
    raise Misconfigured(f"{ledger!r} cannot be read page by page: it has no numeric id. MySQL and SQLite have")


def ledger_rows(
    ledger: MySQLLedger | SQLiteLedger, *, scope: str, generation: int, since_seconds: float | None
) -> PagedTable:
    """Return the digests of a scope's generation, inserted within so many seconds. The rows do not say of which use."""
    if isinstance(ledger, MySQLLedger):
        name, ago = f"x'{scope.encode().hex()}'", "UTC_TIMESTAMP(6)-INTERVAL {} MICROSECOND"
    else:
        name, ago = f"CAST(x'{scope.encode().hex()}' AS TEXT)", NOW + "-{}"
    conditions = [f"scope={name}", f"generation={int(generation)}"]
    if since_seconds is not None:
        conditions.append(f"created_at>={ago.format(int(since_seconds * 1e6))}")
    return PagedTable(table=ledger.table, columns={"digest": "digest"}, where=" AND ".join(conditions))
