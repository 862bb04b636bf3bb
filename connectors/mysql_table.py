"""Tables in MySQL as sinks: in the ledger's own transaction, or recognising their own key."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from .contract import LedgerSession, Scope, SinkKind
from .errors import Misconfigured
from .findings import refuse_errors
from .mysql_check import check_primary, check_scopes
from .mysql_connection import MySQLConnection
from .mysql_key import TableKey
from .mysql_ledger import MySQLLedger
from .mysql_literals import quoted
from .mysql_rights import create_tables
from .mysql_scopes import MySQLScopes
from .mysql_server import MySQLServer, MySQLTimeouts, MySQLTLS
from .mysql_table_proof import TableShape, prove_table
from .mysql_table_session import MySQLKeyedTableSession, MySQLTableSession
from .mysql_versioned import MySQLVersionedSession
from .rows import Path
from .schema import mysql_scopes_ddl
from .scopes import register
from .secret import Secret, take_password
from .table_values import Columns, TableValues
from .versioned import Versioned, path_of, refuse_unfit
from .wanted import check_columns

AnySession = MySQLTableSession | MySQLKeyedTableSession | MySQLVersionedSession


@dataclass(frozen=True, slots=True)
class MySQLTable:
    """Recipe of a table sink, in one of two forms.

    `MySQLTable(ledger, "orders")` writes in the ledger's transaction. `MySQLTable("mysql://user@host:3306/database",
    "orders", unique=("order_id",))` needs no ledger: the table's unique key over exactly these columns, all NOT NULL,
    recognises a second write. `occurrence_column` (VARBINARY(255)) keeps which delivery wrote a row, so that a replay
    and a second send can be told apart.

    `columns` says which part of a record goes into which column (a field's name or path, or a picklable function);
    without it, each field goes into the column of its name. A record that lacks one of these fields is rejected, unless
    its column is named in `optional`: then it gets its default. Aware date-times are stored as UTC.

    `versioned=Versioned(by="version")`, in both forms with `unique`, makes the table keep the newest version of each
    key, in whatever order they come. The gate's key then holds the version, too: `Fields("order_id", "version")`.

    Delivery: exactly once with a ledger; once, for as long as the row is there, by its own key.
    Parallelism: any number of processes.
    """

    where: MySQLLedger | str
    table: str
    columns: Columns | None = field(default=None, kw_only=True)
    optional: tuple[str, ...] = field(default=(), kw_only=True)
    unique: tuple[str, ...] = field(default=(), kw_only=True)
    versioned: Versioned | None = field(default=None, kw_only=True)
    occurrence_column: str | None = field(default=None, kw_only=True)
    password: Secret | None = field(default=None, kw_only=True)
    tls: MySQLTLS | None = field(default=None, kw_only=True)
    timeouts: MySQLTimeouts | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_columns(self.columns, unique=self.unique, optional=self.optional)
        if self.occurrence_column is not None and self.occurrence_column in (self.columns or ()):
            raise Misconfigured(
                f"{self.occurrence_column} is in columns= and is occurrence_column=: it can be one of them"
            )
        if isinstance(self.where, MySQLLedger):
            self._refuse_with_ledger()
        else:
            self._check_keyed(self.where)
        refuse_unfit(self.table, self.versioned, unique=self.unique, columns=self.columns, optional=self.optional)

    def _check_keyed(self, given: str) -> None:
        url, password = take_password(given, self.password)
        object.__setattr__(self, "where", url)
        object.__setattr__(self, "password", password)
        _ = self.server
        if not self.unique:
            raise Misconfigured(
                f"MySQLTable({url!r}, {self.table!r}) needs unique=(column, ...), the key that recognises a second "
                "write; or a MySQLLedger in place of the URL"
            )
        unnamed = [name for name in self.unique if self.columns is not None and name not in self.columns]
        if unnamed:
            raise Misconfigured(f"columns= must also fill the key of {self.table}: {', '.join(unnamed)}")

    def _refuse_with_ledger(self) -> None:
        unique = self.unique if self.versioned is None else ()
        extra = {"unique": unique, "password": self.password, "tls": self.tls, "timeouts": self.timeouts}
        given = [f"{name}=" for name, value in extra.items() if value]
        if given:
            raise Misconfigured(f"MySQLTable(ledger, {self.table!r}) writes on the ledger's connection: drop {given}")

    @property
    def server(self) -> MySQLServer:
        """Where the table is."""
        if isinstance(self.where, MySQLLedger):
            return self.where.server
        timeouts = self.timeouts or MySQLTimeouts()
        return MySQLServer(url=self.where, password=self.password, tls=self.tls, timeouts=timeouts)

    @property
    def ledger(self) -> MySQLLedger | None:
        """The ledger in whose transactions it writes."""
        return self.where if isinstance(self.where, MySQLLedger) else None

    @property
    def kind(self) -> SinkKind:
        return SinkKind.TRANSACTIONAL if isinstance(self.where, MySQLLedger) else SinkKind.DROPS_BY_KEY

    @property
    def target(self) -> str:
        """Database, table and key; not the host, which may get another name."""
        key = f"({','.join(self.unique)})" if self.unique else ""
        return f"mysql:{self.server.database}.{self.table}{key}" + (f" {self.versioned}" if self.versioned else "")

    @property
    def timeout(self) -> timedelta:
        return self.server.timeouts.statement

    @property
    def atomic(self) -> bool:
        return True

    @property
    def can_probe(self) -> bool:
        return self.kind is SinkKind.DROPS_BY_KEY

    @property
    def remembers(self) -> timedelta | None:
        return None

    @property
    def tells_occurrence(self) -> bool:
        return self.can_probe and self.occurrence_column is not None

    @property
    def version_path(self) -> Path | None:
        """Where a record's version stands; None where a function makes it, or where there are no versions."""
        return path_of(self.versioned, self.columns)

    @property
    def ddl(self) -> list[str]:
        """The statements for what it needs beside the table itself and its ledger."""
        return [] if isinstance(self.where, MySQLLedger) else mysql_scopes_ddl()

    def create_tables(self) -> None:
        """Apply `ddl`."""
        create_tables(self.server, self.ddl)

    def open(self, scope: Scope, ledger: LedgerSession | None) -> AnySession:
        """Prove that table, columns and key are there. Raises `Misconfigured` or `Unavailable`."""
        if isinstance(self.where, MySQLLedger):
            connection = self._shared(self.where, ledger)
            shape = self._prove(connection)
            if self.versioned is not None:
                return self._versioned(connection, shape, self.versioned, in_ledger=True, store_id=None)
            return MySQLTableSession(connection, self._values(shape), table=self.table)
        connection = MySQLConnection(self.server)
        try:
            return self._open_keyed(connection, scope, registers=ledger is None)
        except BaseException:
            connection.close()
            raise

    def prove(self) -> None:
        """Look at the table over a connection of its own. Raises `Misconfigured` or `Unavailable`."""
        connection = MySQLConnection(self.server)
        try:
            self._prove(connection)
        finally:
            connection.close()

    def _shared(self, recipe: MySQLLedger, ledger: LedgerSession | None) -> MySQLConnection:
        connection = getattr(getattr(ledger, "inner", ledger), "connection", None)
        if not isinstance(connection, MySQLConnection) or connection.server != recipe.server:
            raise Misconfigured(
                f"{self.table} is written in a transaction of its ledger, so the gate must have ledger={recipe!r}"
            )
        return connection

    def _open_keyed(self, connection: MySQLConnection, scope: Scope, *, registers: bool) -> AnySession:
        refuse_errors(check_primary(connection))
        shape = self._prove(connection)
        store_id = None
        if registers:
            refuse_errors(check_scopes(connection))
            store_id = register(MySQLScopes(connection), scope, retention=None)
        if self.versioned is not None:
            return self._versioned(connection, shape, self.versioned, in_ledger=False, store_id=store_id)
        return MySQLKeyedTableSession(
            connection,
            self._values(shape),
            key=self._key(shape),
            occurrence="NULL" if self.occurrence_column is None else quoted(self.occurrence_column),
            store_id=store_id,
        )

    def _versioned(
        self,
        connection: MySQLConnection,
        shape: TableShape,
        versioned: Versioned,
        *,
        in_ledger: bool,
        store_id: bytes | None,
    ) -> MySQLVersionedSession:
        return MySQLVersionedSession(
            connection,
            self._values(shape),
            key=self._key(shape),
            versioned=versioned,
            kind=shape.kind,
            occurrence=self.occurrence_column,
            in_ledger=in_ledger,
            store_id=store_id,
        )

    def _key(self, shape: TableShape) -> TableKey:
        return TableKey(self.table, {name: shape.columns[name].as_stored for name in self.unique})

    def _prove(self, connection: MySQLConnection) -> TableShape:
        return prove_table(
            connection,
            self.table,
            columns=tuple(self.columns or ()),
            unique=self.unique,
            versioned=self.versioned,
            occurrence_column=self.occurrence_column,
        )

    def _values(self, shape: TableShape) -> TableValues:
        return TableValues(
            self.table,
            [name for name in shape.columns if name != self.occurrence_column],
            columns=self.columns,
            occurrence_column=self.occurrence_column,
            required=self.unique,
            optional=self.optional,
            versioned=self.versioned,
        )
