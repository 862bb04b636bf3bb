"""Prove that a business table fits what is to be written into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .findings import refuse_errors
from .mysql_check import check_exists, check_unique_key
from .mysql_columns import (
    TableColumn,
    check_key_columns,
    check_named,
    check_occurrence,
    check_versions,
    read_columns,
)
from .mysql_connection import MySQLConnection
from .mysql_rights import check_rights
from .versioned import Kind, Versioned


class TableShape(NamedTuple):
    """The columns that take values, and what that of the version holds where there is one."""

    columns: Mapping[str, TableColumn]
    kind: Kind


def prove_table(
    connection: MySQLConnection,
    table: str,
    *,
    columns: tuple[str, ...],
    unique: tuple[str, ...],
    versioned: Versioned | None,
    occurrence_column: str | None,
) -> TableShape:
    """Look at columns, key and rights. `columns` are those that are written, all where none is named.

    Raises `Misconfigured`.
    """
    refuse_errors(check_exists(connection, table, "create it, or correct the name"))
    there = read_columns(connection, table)
    occurrence = () if occurrence_column is None else (occurrence_column,)
    check_named(table, (*columns, *unique), there)
    if occurrence_column is not None:
        check_occurrence(table, occurrence_column, there)
    if unique:
        todo = f"ALTER TABLE {table} ADD UNIQUE KEY ({', '.join(unique)})"
        refuse_errors(check_unique_key(connection, table, unique, todo))
        check_key_columns(table, unique, there)
    kind: Kind = "integer"
    if versioned is not None:
        kind = check_versions(table, versioned, kept=(*unique, *occurrence), columns=there)
    verbs = ("INSERT",) if versioned is None else ("INSERT", "UPDATE")
    written = (*columns, *occurrence) if columns else tuple(there)
    refuse_errors(check_rights(connection, table, written, *verbs))
    return TableShape(there, kind)
