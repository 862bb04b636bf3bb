"""A live table sink of SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from .contract import WRITTEN, Answer, Write
from .errors import Misconfigured, Rejected
from .sqlite_connection import SQLiteConnection
from .sqlite_values import CONVERTERS, quoted
from .table_values import Default, TableValues


class SQLiteTableSession:
    """Writes on the ledger's connection, inside its transaction. Closing it leaves the connection to the ledger."""

    def __init__(self, connection: SQLiteConnection, values: TableValues, *, table: str) -> None:
        self._connection = connection
        self._values = values
        self._table = table

    @property
    def store_id(self) -> bytes | None:
        return None

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        """Insert all or raise. The ledger's lock is held already, so that nothing here waits."""
        if not self._connection.in_transaction:
            raise Misconfigured("a transactional sink writes inside the ledger's `transaction()` only")
        return self._apply(writes) if writes else []

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise Misconfigured("a transactional sink has no record in doubt, so there is nothing to probe")

    def close(self) -> None:
        pass

    def _apply(self, writes: Sequence[Write]) -> Sequence[Answer]:
        values = self._values.read(writes)
        rows = [[CONVERTERS[type(value)](value) for value in row] for row in values.rows]
        # SQLite has no word for a column's default inside VALUES: such a column must not be named.
        for given, part in groupby(rows, key=lambda row: tuple(type(value) is not Default for value in row)):
            names = ", ".join(quoted(name) for name, is_given in zip(values.names, given, strict=True) if is_given)
            marks = ", ".join("?" * sum(given))
            parameters = [[value for value in row if type(value) is not Default] for row in part]
            taken = self._connection.execute_each(
                f"INSERT INTO {quoted(self._table)} ({names}) VALUES ({marks})", parameters
            )
            if taken != len(parameters):
                self._refuse_ignored(len(parameters) - taken)
        return [WRITTEN] * len(writes)

    def _refuse_ignored(self, count: int) -> None:
        """Raise `Rejected`, unless it is a view, whose rows are not counted: its triggers put them elsewhere."""
        kind = "SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type = 'view'"
        if not self._connection.query(kind, (self._table,)):
            raise Rejected(
                "refused", f"{self._table} ignores {count} rows without a word: by ON CONFLICT IGNORE, or a trigger"
            )
