"""The columns of a business table: what an insert may name, and how a key is found again as it was stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import Misconfigured
from .mysql_check import about
from .mysql_connection import MySQLConnection
from .versioned import Kind, Versioned

_CHARACTERS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")

_AS_STORED = {
    **dict.fromkeys(_CHARACTERS, "CONCAT({})"),
    # CHAR is stored without spaces at its end, and MySQL 8 compares them where MariaDB does not.
    "char": "TRIM(TRAILING ' ' FROM CONCAT({}))",
    **dict.fromkeys((*_INTEGERS, "year"), "CAST({} AS DECIMAL(65,0))"),
    "double": "({}+0e0)",
    **dict.fromkeys(_BINARY, "CAST({} AS BINARY)"),
    "date": "CAST({} AS DATE)",
    **dict.fromkeys(("datetime", "timestamp"), "CAST({} AS DATETIME(DIGITS))"),
    "time": "CAST({} AS TIME(DIGITS))",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumn:
    """A column as `information_schema` shows it."""

    name: str
    data_type: str
    column_type: str
    nullable: bool
    time_digits: int
    fills_itself: bool = False
    """Whether it has a default, or counts."""

    @property
    def as_stored(self) -> str:
        """A template that turns a literal into what the column keeps of it: rounded, padded, or as text.

        Without it a key that the server changes on its way in would not be found again, and a number would be compared
        with the beginning of a text. What the column cannot hold, the server changes under a warning.
        """
        if self.data_type in ("decimal", "binary"):
            return f"CAST({{}} AS {self.column_type.split(')')[0]}))"
        return _AS_STORED.get(self.data_type, "{}").replace("DIGITS", str(self.time_digits))


def read_columns(connection: MySQLConnection, table: str) -> Mapping[str, TableColumn]:
    """Return the columns that take values, in the table's order."""
    itself = "column_default IS NOT NULL OR extra LIKE '%auto_increment%'"
    what = f"column_name, data_type, column_type, is_nullable, COALESCE(datetime_precision, 0), {itself}"
    rows = about(
        connection, what, "columns", table, " AND COALESCE(generation_expression, '')='' ORDER BY ordinal_position"
    )
    return {
        name: TableColumn(
            name=name,
            data_type=kind.lower(),
            column_type=full.lower(),
            nullable=nullable == "YES",
            time_digits=int(digits),
            fills_itself=filled == "1",
        )
        for name, kind, full, nullable, digits, filled in rows
    }


def check_key_columns(table: str, unique: tuple[str, ...], columns: Mapping[str, TableColumn]) -> None:
    """Raise `Misconfigured` where equal keys could be stored twice, or could not be found again."""
    for column in [columns[name] for name in unique]:
        if column.nullable:
            todo = f"ALTER TABLE {table} MODIFY {column.name} {column.column_type} NOT NULL"
            raise Misconfigured(f"{table}.{column.name} is part of the key and takes NULL any number of times: {todo}")
        if column.data_type == "float":
            raise Misconfigured(
                f"{table}.{column.name} is a FLOAT, which is rounded: a key of it cannot be found again"
            )
        if column.data_type == "bit":
            todo = f"ALTER TABLE {table} MODIFY {column.name} BIGINT UNSIGNED NOT NULL"
            raise Misconfigured(
                f"{table}.{column.name} is a BIT, which keeps a text's bytes and compares its number: {todo}"
            )


def check_named(table: str, names: tuple[str, ...], columns: Mapping[str, TableColumn]) -> None:
    """Raise `Misconfigured` where a column that the settings name is not there."""
    missing = [name for name in names if name not in columns]
    if missing:
        todo = f"ALTER TABLE {table} ADD COLUMN {missing[0]} ..."
        raise Misconfigured(f"table {table} has no column {', '.join(missing)}: {todo}, or correct the settings")


def check_occurrence(table: str, name: str, columns: Mapping[str, TableColumn]) -> None:
    """Raise `Misconfigured` where the occurrence column does not keep bytes as they are."""
    check_named(table, (name,), columns)
    if columns[name].data_type not in _BINARY or columns[name].data_type == "binary":
        todo = f"ALTER TABLE {table} MODIFY {name} VARBINARY(255) NULL"
        raise Misconfigured(f"{table}.{name} is {columns[name].column_type} and cannot hold an occurrence: {todo}")


def check_versions(
    table: str, versioned: Versioned, *, kept: tuple[str, ...], columns: Mapping[str, TableColumn]
) -> Kind:
    """Return what the version column holds. Raises `Misconfigured` where the columns do not fit.

    `kept` are the columns, besides version and `deleted`, that a tombstone has values for.
    """
    by = columns[versioned.by]
    is_integer, is_moment = by.data_type in _INTEGERS, by.data_type in ("datetime", "timestamp") and by.time_digits == 6
    if by.nullable or not (is_integer or is_moment):
        todo = f"ALTER TABLE {table} MODIFY {by.name} BIGINT NOT NULL, or DATETIME(6) NOT NULL"
        raise Misconfigured(f"{table}.{by.name} is {by.column_type} {'NULL' if by.nullable else ''}: {todo}")
    if versioned.deleted is not None:
        deleted = columns[versioned.deleted]
        if deleted.data_type not in _INTEGERS:
            todo = f"ALTER TABLE {table} MODIFY {deleted.name} TINYINT NOT NULL DEFAULT 0"
            raise Misconfigured(f"{table}.{deleted.name} is {deleted.column_type} and holds no 0 and 1: {todo}")
        fixed = (*kept, by.name, deleted.name)
        bare = [
            each for each in columns.values() if not each.nullable and not each.fills_itself and each.name not in fixed
        ]
        if bare:
            todo = f"ALTER TABLE {table} MODIFY {bare[0].name} {bare[0].column_type} NULL"
            raise Misconfigured(f"a tombstone has no value for {table}.{bare[0].name}: {todo}, or give it a default")
    return "integer" if is_integer else "datetime"
