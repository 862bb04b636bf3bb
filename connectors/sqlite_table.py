"""A table in the ledger's own SQLite file as a sink."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import groupby
from typing import Any
from uuid import UUID

from .contract import WRITTEN, Answer, LedgerSession, Scope, SinkKind, Write
from .errors import Misconfigured, Rejected
from .sqlite_connection import SQLiteConnection
from .sqlite_ledger import SQLiteLedger
from .table_values import Columns, Default, TableValues, Values, json_text, utc


@dataclass(frozen=True, slots=True)
class SQLiteTable:
    """Recipe of a table sink in the ledger's transaction: `SQLiteTable(ledger, "orders")`.

    `columns` as in `MySQLTable`. Dates and aware date-times (as UTC), decimals and UUIDs are stored as text, nested
    values as JSON.

    Delivery: exactly once.
    Parallelism: processes of one machine.
    """

    ledger: SQLiteLedger
    table: str
    columns: Columns | None = field(default=None, kw_only=True)
    occurrence_column: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.occurrence_column is not None and self.occurrence_column in (self.columns or ()):
            raise Misconfigured(f"{self.occurrence_column} is in columns= and is occurrence_column=")

    @property
    def kind(self) -> SinkKind:
        return SinkKind.TRANSACTIONAL

    @property
    def target(self) -> str:
        return f"sqlite:{self.table}"

    @property
    def timeout(self) -> timedelta:
        return self.ledger.busy

    @property
    def atomic(self) -> bool:
        return True

    @property
    def can_probe(self) -> bool:
        return False

    @property
    def remembers(self) -> timedelta | None:
        return None

    @property
    def tells_occurrence(self) -> bool:
        return False

    def open(self, scope: Scope, ledger: LedgerSession | None) -> SQLiteTableSession:
        """Prove that table and columns are there. Raises `Misconfigured`."""
        connection = getattr(getattr(ledger, "inner", ledger), "connection", None)
        if not isinstance(connection, SQLiteConnection) or connection.path != self.ledger.path:
            raise Misconfigured(
                f"{self.table} is written in a transaction of its ledger: give the gate {self.ledger!r}"
            )
        there, occurrence = self._columns(connection)
        values = TableValues(
            self.table,
            [name for name in there if name not in occurrence],
            columns=self.columns,
            occurrence_column=self.occurrence_column,
        )
        return SQLiteTableSession(connection, values, table=self.table)

    def prove(self) -> None:
        """Look at the table over a connection of its own. Raises `Misconfigured` or `Unavailable`."""
        connection = SQLiteConnection(self.ledger.path, busy=self.ledger.busy)
        try:
            self._columns(connection)
        finally:
            connection.close()

    def _columns(self, connection: SQLiteConnection) -> tuple[list[str], tuple[str, ...]]:
        # Generated columns are not among them.
        there = [row[1] for row in connection.query(f"PRAGMA table_info({_quoted(self.table)})")]
        if not there:
            raise Misconfigured(f"{connection.path}: table {self.table} is missing: create it, or correct the name")
        occurrence = () if self.occurrence_column is None else (self.occurrence_column,)
        missing = [name for name in (*(self.columns or ()), *occurrence) if name not in there]
        if missing:
            todo = f"ALTER TABLE {self.table} ADD COLUMN {missing[0]} ..."
            raise Misconfigured(
                f"table {self.table} has no column {', '.join(missing)}: {todo}, or correct the settings"
            )
        return there, occurrence


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
        if writes:
            self._insert(self._values.read(writes))
        return [WRITTEN] * len(writes)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise Misconfigured("a transactional sink has no record in doubt, so there is nothing to probe")

    def close(self) -> None:
        pass

    def _insert(self, values: Values) -> None:
        rows = [[CONVERTERS[type(value)](value) for value in row] for row in values.rows]
        # SQLite has no word for a column's default inside VALUES: such a column must not be named.
        for given, part in groupby(rows, key=lambda row: tuple(type(value) is not Default for value in row)):
            names = ", ".join(_quoted(name) for name, is_given in zip(values.names, given, strict=True) if is_given)
            marks = ", ".join("?" * sum(given))
            self._connection.execute_each(
                f"INSERT INTO {_quoted(self._table)} ({names}) VALUES ({marks})",
                [[value for value in row if type(value) is not Default] for row in part],
            )


def _same(value: Any) -> Any:
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise Rejected("not_finite", f"a table cannot hold {value!r}")
    return value


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Rejected("not_finite", f"a table cannot hold {value!r}")
    return format(value, "f")


_BY_TYPE: dict[type, Callable[[Any], Any]] = {
    str: _same,
    int: _same,
    bool: int,
    float: _finite,
    bytes: _same,
    bytearray: bytes,
    memoryview: bytes,
    type(None): _same,
    Default: _same,
    Decimal: _decimal,
    datetime: utc,
    date: date.isoformat,
    time: time.isoformat,
    UUID: str,
    dict: json_text,
    list: json_text,
    tuple: json_text,
}


class _Converters(dict[type, Callable[[Any], Any]]):
    """Finds the function of a subclass once."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        if issubclass(kind, Enum):
            found: Callable[[Any], Any] = lambda value: self[type(value.value)](value.value)  # noqa: E731
        else:
            found = next((_BY_TYPE[basic] for basic in kind.__mro__ if basic in _BY_TYPE), _refuse)
        self[kind] = found
        return found


def _refuse(value: object) -> Any:
    raise Rejected("wrong_type", f"a table cannot hold a {type(value).__name__}")


CONVERTERS = _Converters(_BY_TYPE)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
