"""Versioned rows in SQLite: one conditional upsert a record, which itself tells whether it changed anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .contract import STALE, WRITTEN, Answer, Write
from .errors import Misconfigured
from .sqlite_connection import SQLiteConnection
from .sqlite_table_session import SQLiteTableSession
from .sqlite_values import CONVERTERS, quoted
from .table_values import DEFAULT, Default, TableValues
from .versioned import Kind, Versioned, buried, newest, version_of

_MOMENTS = ("DATETIME", "TIMESTAMP", "TEXT")


class SQLiteVersionedSession(SQLiteTableSession):
    """As `SQLiteTableSession`, but a record whose version the row bears already, or a newer one, is answered STALE."""

    def __init__(
        self,
        connection: SQLiteConnection,
        values: TableValues,
        *,
        table: str,
        versioned: Versioned,
        unique: tuple[str, ...],
        kind: Kind,
    ) -> None:
        super().__init__(connection, values, table=table)
        self._versioned = versioned
        self._unique = unique
        self._kind: Kind = kind

    def _apply(self, writes: Sequence[Write]) -> Sequence[Answer]:
        names, rows = self._values.read(writes)
        by = names.index(self._versioned.by)
        versions = [version_of(row[by], self._kind, self._versioned.by) for row in rows]
        kept = (*self._unique, self._versioned.by, *names[len(self._values.chosen) :])
        rows = buried(names, rows, self._versioned, keep=kept, default=DEFAULT)
        values = [[CONVERTERS[type(value)](value) for value in row] for row in rows]
        places = [names.index(name) for name in self._unique]
        keys = [tuple(row[place] for place in places) for row in values]
        best = newest(keys, versions)
        statements = _Upserts(self._table, names, self._unique, self._versioned.by, self._kind)
        answers = []
        for index, key in enumerate(keys):
            changed = best[key] == index and self._connection.execute(*statements(values[index]))
            answers.append(WRITTEN if changed else STALE)
        return answers


class _Upserts(dict[tuple[bool, ...], str]):
    """The statement for each choice of columns that have values: SQLite has no word for a default inside VALUES."""

    def __init__(self, table: str, names: Sequence[str], unique: Sequence[str], by: str, kind: Kind) -> None:
        self._table, self._names, self._by = quoted(table), [quoted(name) for name in names], quoted(by)
        self._unique = [quoted(name) for name in unique]
        held = f"{self._table}.{self._by}"
        # Who else writes the table may put a T between date and time, and above any blank.
        self._held = f"replace({held}, 'T', ' ')" if kind == "datetime" else held

    def __call__(self, row: Sequence[Any]) -> tuple[str, list[Any]]:
        given = [value for value in row if type(value) is not Default]
        return self[tuple([type(value) is not Default for value in row])], given

    def __missing__(self, given: tuple[bool, ...]) -> str:
        names = [name for name, is_given in zip(self._names, given, strict=True) if is_given]
        # `excluded` holds the default of a column that is not named.
        changes = [f"{name}=excluded.{name}" for name in self._names if name not in self._unique]
        self[given] = (
            f"INSERT INTO {self._table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT ({', '.join(self._unique)}) DO UPDATE SET {', '.join(changes)} "
            f"WHERE excluded.{self._by} > {self._held}"
        )
        return self[given]


def prove_versions(
    connection: SQLiteConnection, table: str, versioned: Versioned, *, unique: tuple[str, ...], kept: Sequence[str]
) -> Kind:
    """Return what the version column holds. Raises `Misconfigured` where key or columns do not fit.

    `kept` are the columns, besides the version, that a tombstone has values for.
    """
    columns = {row[1]: row for row in connection.query(f"PRAGMA table_info({quoted(table)})")}
    _check_key(connection, table, unique, columns)
    kind, nullable = str(columns[versioned.by][2]).upper(), not columns[versioned.by][3]
    if nullable or not ("INT" in kind or kind.startswith(_MOMENTS)):
        raise Misconfigured(
            f"{table}.{versioned.by} is {kind or 'of no type'}{' NULL' if nullable else ''}: versions want INTEGER NOT "
            "NULL, or TEXT NOT NULL for date-times; make the table anew, SQLite changes no column"
        )
    if versioned.deleted is not None:
        fixed = (*kept, versioned.by, versioned.deleted)
        bare = [name for name, row in columns.items() if row[3] and row[4] is None and not row[5] and name not in fixed]
        if bare:
            raise Misconfigured(f"a tombstone has no value for {table}.{bare[0]}: let it be NULL, or give it a default")
    return "integer" if "INT" in kind else "datetime"


def _check_key(
    connection: SQLiteConnection, table: str, unique: tuple[str, ...], columns: dict[str, tuple[Any, ...]]
) -> None:
    primary = {name for name, row in columns.items() if row[5]}
    keys = [primary]
    for _, index, is_unique, _, partial in connection.query(f"PRAGMA index_list({quoted(table)})"):
        if is_unique and not partial:
            keys.append({name for _, _, name in connection.query(f"PRAGMA index_info({quoted(index)})")})
    if set(unique) not in keys:
        todo = f"CREATE UNIQUE INDEX {table}_key ON {table} ({', '.join(unique)})"
        raise Misconfigured(f"table {table} has no unique key on ({', '.join(unique)}): {todo}")
    for name in unique:
        is_rowid = primary == {name} and str(columns[name][2]).upper() == "INTEGER"
        if not columns[name][3] and not is_rowid:
            raise Misconfigured(
                f"{table}.{name} is part of the key and takes NULL any number of times: make it NOT NULL"
            )
