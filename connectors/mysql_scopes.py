"""The table of scopes in MySQL."""

from __future__ import annotations

from .contract import Scope
from .mysql_connection import MySQLConnection
from .mysql_literals import binary
from .schema import SCOPES_TABLE
from .scopes import Registered


class MySQLScopes:
    """Reads and writes scopes over a connection that is in no transaction."""

    def __init__(self, connection: MySQLConnection) -> None:
        self._connection = connection

    def insert(self, scope: Scope, row: Registered) -> None:
        """Insert the row unless there is one."""
        self._connection.execute(
            f"INSERT IGNORE INTO {SCOPES_TABLE} (scope, used_for, tables_format, generation, meaning, ledger_id, "
            f"retention_seconds, created_at, changed_at) VALUES ({binary(scope.name.encode())}, '{scope.use.value}', "
            f"{row.tables_format}, {row.generation}, {binary(row.meaning.encode())}, {binary(row.ledger_id)}, "
            f"{_number(row.retention_seconds)}, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
        )

    def load(self, scope: Scope) -> Registered | None:
        """Return the row as it is now."""
        rows = self._connection.query(
            f"SELECT tables_format, generation, meaning, ledger_id, retention_seconds FROM {SCOPES_TABLE} "
            f"WHERE {_is(scope)}"
        )
        if not rows:
            return None
        tables_format, generation, meaning, ledger_id, seconds = rows[0]
        kept = None if seconds is None else int(seconds)
        return Registered(int(tables_format), int(generation), meaning.decode(), ledger_id, kept)

    def replace(self, scope: Scope, row: Registered, *, seen: Registered) -> None:
        """Store generation, meaning and retention, if generation and meaning are still as seen."""
        self._connection.execute(
            f"UPDATE {SCOPES_TABLE} SET generation={row.generation}, meaning={binary(row.meaning.encode())}, "
            f"retention_seconds={_number(row.retention_seconds)}, changed_at=UTC_TIMESTAMP(6) "
            f"WHERE {_is(scope)} AND generation={seen.generation} AND meaning={binary(seen.meaning.encode())}"
        )


def _is(scope: Scope) -> str:
    return f"scope={binary(scope.name.encode())} AND used_for='{scope.use.value}'"


def _number(value: int | None) -> str:
    return "NULL" if value is None else str(int(value))
