"""What a MySQL server, its ledger and its tables need for the guarantee, and what narrows it."""

from __future__ import annotations

from typing import Any

from .findings import Finding
from .mysql_connection import MySQLConnection
from .mysql_literals import text
from .mysql_rights import check_rights
from .schema import LEDGER_TABLE, MYSQL_LEDGER_COLUMNS, MYSQL_SCOPES_COLUMNS, SCOPES_TABLE, init_command

WANTED_PACKET_BYTES = 16 * 1024 * 1024


def check_primary(connection: MySQLConnection) -> list[Finding]:
    """Look whether this server takes writes."""
    if connection.query("SELECT @@global.read_only")[0][0] == "0":
        return []
    what = f"{connection.server.url} is read-only, as a replica is"
    return [Finding(severity="error", what=what, todo="connect to the primary")]


def check_scopes(connection: MySQLConnection, table: str = LEDGER_TABLE) -> list[Finding]:
    """Look at the table of scopes. `table` is the ledger's, for what is said of how to make them."""
    missing = check_exists(connection, SCOPES_TABLE, init_command(table))
    if missing:
        return missing
    key = ("scope", "used_for")
    return [
        *check_unique_key(connection, SCOPES_TABLE, key, init_command(table)),
        *check_rights(connection, SCOPES_TABLE, MYSQL_SCOPES_COLUMNS, "INSERT", "UPDATE"),
    ]


def check_ledger(connection: MySQLConnection, table: str) -> list[Finding]:
    """Look at the ledger's engine, columns, unique key and triggers."""
    missing = check_exists(connection, table, init_command(table)) or _columns(connection, table)
    if missing:
        return missing
    return [
        *check_rights(connection, table, tuple(MYSQL_LEDGER_COLUMNS), "INSERT", "UPDATE", "DELETE"),
        *check_unique_key(connection, table, ("digest",), f"ALTER TABLE {table} ADD UNIQUE KEY digest (digest)"),
        *_triggers(connection, table),
    ]


def check_exists(connection: MySQLConnection, table: str, todo: str) -> list[Finding]:
    """Look whether a table is there, and of an engine that has transactions."""
    rows = about(connection, "engine, table_type", "tables", table)
    if not rows:
        return [Finding(severity="error", what=f"{_place(connection, table)} is missing", todo=todo)]
    engine, kind = rows[0]
    if kind != "BASE TABLE":
        return [Finding(severity="error", what=f"{_place(connection, table)} is a {kind}", todo="name a table")]
    if engine.lower() != "innodb":
        what = f"{_place(connection, table)} is of engine {engine}, which has no transactions"
        return [Finding(severity="error", what=what, todo=f"ALTER TABLE {table} ENGINE=InnoDB")]
    return []


def check_unique_key(connection: MySQLConnection, table: str, columns: tuple[str, ...], todo: str) -> list[Finding]:
    """Look for a unique key over exactly these columns, whole."""
    rows = about(connection, "index_name, column_name, sub_part", "statistics", table, " AND non_unique=0")
    keys: dict[str, set[str]] = {}
    for index, column, part in rows:
        keys.setdefault(index, set()).add(column.lower() if part is None else f"a part of {column}")
    if {column.lower() for column in columns} in keys.values():
        return []
    what = f"{_place(connection, table)} has no unique key on ({', '.join(columns)})"
    return [Finding(severity="error", what=what, todo=todo)]


def check_server(connection: MySQLConnection) -> list[Finding]:
    """Look at the settings of the server that decide what a crash of it may forget, and what fits into a statement."""
    values = _variables(connection)
    findings = check_primary(connection)
    for name, wanted, loss in _DURABILITY:
        if name in values and values[name] not in wanted and not (name == "sync_binlog" and values["log_bin"] == "0"):
            findings.append(Finding(severity="warning", what=f"{name}={values[name]}: {loss}", todo=f"set {wanted[0]}"))
    if int(values["max_allowed_packet"]) < WANTED_PACKET_BYTES:
        what = f"max_allowed_packet={values['max_allowed_packet']}: batches are cut into more statements"
        findings.append(Finding(severity="warning", what=what, todo=f"set {WANTED_PACKET_BYTES} or more"))
    if "STRICT_" not in values["sql_mode"]:
        what = (
            f"sql_mode={values['sql_mode']!r}: other writers may store cut values in silence; sessions here are strict"
        )
        findings.append(Finding(severity="warning", what=what, todo="add STRICT_ALL_TABLES"))
    return findings


_DURABILITY = (
    ("innodb_flush_log_at_trx_commit", ("1",), "a crash may forget acknowledged commits"),
    ("innodb_doublewrite", ("1", "ON"), "a crash may leave torn pages"),
    ("sync_binlog", ("1",), "a crash may keep acknowledged commits from replicas"),
)


def _variables(connection: MySQLConnection) -> dict[str, str]:
    names = ["log_bin", "max_allowed_packet", "sql_mode", *(name for name, _, _ in _DURABILITY)]
    row = connection.query("SELECT " + ",".join(f"@@global.{name}" for name in names))[0]
    return dict(zip(names, row, strict=True))


def _columns(connection: MySQLConnection, table: str) -> list[Finding]:
    size = "COALESCE(character_maximum_length, datetime_precision)"
    rows = about(connection, f"column_name, data_type, {size}, is_nullable", "columns", table)
    there = {name.lower(): (kind.lower(), size, nullable == "YES") for name, kind, size, nullable in rows}
    findings = []
    for name, wanted in MYSQL_LEDGER_COLUMNS.items():
        kind, size_there, nullable = there.get(name, ("missing", None, wanted.nullable))
        fits = kind == wanted.data_type and nullable == wanted.nullable
        if not fits or (wanted.size is not None and int(size_there or 0) != wanted.size):
            what = f"column {name} of {_place(connection, table)} is {kind}({size_there or ''}), not {wanted}"
            findings.append(Finding(severity="error", what=what, todo="compare it with what `oncesink init` prints"))
    return findings


def _triggers(connection: MySQLConnection, table: str) -> list[Finding]:
    rows = connection.query(
        "SELECT trigger_name FROM information_schema.triggers "
        f"WHERE event_object_schema=DATABASE() AND event_object_table={text(table)}"
    )
    names = ", ".join(row[0] for row in rows)
    what = f"{_place(connection, table)} has triggers ({names}), which may change what is claimed"
    return [Finding(severity="error", what=what, todo="drop them")] if rows else []


def about(
    connection: MySQLConnection, columns: str, view: str, table: str, also: str = ""
) -> tuple[tuple[Any, ...], ...]:
    """Read columns of a view of `information_schema` that tell of one table."""
    return connection.query(
        f"SELECT {columns} FROM information_schema.{view} "
        f"WHERE table_schema=DATABASE() AND table_name={text(table)}{also}"
    )


def _place(connection: MySQLConnection, table: str) -> str:
    return f"table {connection.server.database}.{table}"
