"""A table in the ledger's own SQLite file as a sink."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from .contract import LedgerSession, Scope, SinkKind
from .errors import Misconfigured
from .rows import Path
from .sqlite_connection import SQLiteConnection
from .sqlite_ledger import SQLiteLedger
from .sqlite_table_session import SQLiteTableSession
from .sqlite_values import quoted
from .sqlite_versioned import SQLiteVersionedSession, prove_versions
from .table_values import Columns, TableValues
from .versioned import Kind, Versioned, path_of, refuse_unfit
from .wanted import check_columns


@dataclass(frozen=True, slots=True)
class SQLiteTable:
    """Recipe of a table sink in the ledger's transaction: `SQLiteTable(ledger, "orders")`.

    `columns`, `optional`, and `unique` with `versioned`, as in `MySQLTable`. Dates and aware date-times (as UTC),
    decimals and UUIDs are stored as text, nested values as JSON.

    Delivery: exactly once.
    Parallelism: processes of one machine.
    """

    ledger: SQLiteLedger
    table: str
    columns: Columns | None = field(default=None, kw_only=True)
    optional: tuple[str, ...] = field(default=(), kw_only=True)
    unique: tuple[str, ...] = field(default=(), kw_only=True)
    versioned: Versioned | None = field(default=None, kw_only=True)
    occurrence_column: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_columns(self.columns, unique=self.unique, optional=self.optional)
        refuse_unfit(self.table, self.versioned, unique=self.unique, columns=self.columns, optional=self.optional)
        if self.unique and self.versioned is None:
            raise Misconfigured(
                f"unique={self.unique} of {self.table} does nothing without versioned=: the ledger decides"
            )
        if self.occurrence_column is not None and self.occurrence_column in (self.columns or ()):
            raise Misconfigured(f"{self.occurrence_column} is in columns= and is occurrence_column=")

    @property
    def kind(self) -> SinkKind:
        return SinkKind.TRANSACTIONAL

    @property
    def target(self) -> str:
        return f"sqlite:{self.table}" + (f"({','.join(self.unique)}) {self.versioned}" if self.versioned else "")

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

    @property
    def version_path(self) -> Path | None:
        """Where a record's version stands; None where a function makes it, or where there are no versions."""
        return path_of(self.versioned, self.columns)

    def open(self, scope: Scope, ledger: LedgerSession | None) -> SQLiteTableSession | SQLiteVersionedSession:
        """Prove that table and columns are there. Raises `Misconfigured`."""
        connection = getattr(getattr(ledger, "inner", ledger), "connection", None)
        if not isinstance(connection, SQLiteConnection) or connection.path != self.ledger.path:
            raise Misconfigured(
                f"{self.table} is written in a transaction of its ledger: give the gate {self.ledger!r}"
            )
        there, occurrence = self._columns(connection)
        kind = self._prove_versions(connection)
        values = TableValues(
            self.table,
            [name for name in there if name not in occurrence],
            columns=self.columns,
            occurrence_column=self.occurrence_column,
            required=self.unique,
            optional=self.optional,
            versioned=self.versioned,
        )
        if self.versioned is None or kind is None:
            return SQLiteTableSession(connection, values, table=self.table)
        return SQLiteVersionedSession(
            connection, values, table=self.table, versioned=self.versioned, unique=self.unique, kind=kind
        )

    def prove(self) -> None:
        """Look at the table over a connection of its own. Raises `Misconfigured` or `Unavailable`."""
        connection = SQLiteConnection(self.ledger.path, busy=self.ledger.busy)
        try:
            self._columns(connection)
            self._prove_versions(connection)
        finally:
            connection.close()

    def _prove_versions(self, connection: SQLiteConnection) -> Kind | None:
        if self.versioned is None:
            return None
        kept = (*self.unique, *((self.occurrence_column,) if self.occurrence_column else ()))
        return prove_versions(connection, self.table, self.versioned, unique=self.unique, kept=kept)

    def _columns(self, connection: SQLiteConnection) -> tuple[list[str], tuple[str, ...]]:
        # Generated columns are not among them.
        there = [row[1] for row in connection.query(f"PRAGMA table_info({quoted(self.table)})")]
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
