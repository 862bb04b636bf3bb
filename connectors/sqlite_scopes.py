"""The table of scopes in SQLite."""

from __future__ import annotations

from .contract import Scope
from .schema import SCOPES_TABLE
from .scopes import Registered
from .sqlite_connection import NOW, SQLiteConnection


class SQLiteScopes:
    """Reads and writes scopes over a connection."""

    def __init__(self, connection: SQLiteConnection) -> None:
        self._connection = connection

    def insert(self, scope: Scope, row: Registered) -> None:
        """Insert the row unless there is one."""
        self._connection.execute(
            f"INSERT INTO {SCOPES_TABLE} (scope, used_for, tables_format, generation, meaning, ledger_id, "
            f"retention_seconds, created_at, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, {NOW}, {NOW}) "
            "ON CONFLICT (scope, used_for) DO NOTHING",
            (scope.name, scope.use.value, *row),
        )

    def load(self, scope: Scope) -> Registered | None:
        """Return the row as it is now."""
        rows = self._connection.query(
            f"SELECT tables_format, generation, meaning, ledger_id, retention_seconds FROM {SCOPES_TABLE} "
            "WHERE scope=? AND used_for=?",
            (scope.name, scope.use.value),
        )
        return Registered(*rows[0]) if rows else None

    def replace(self, scope: Scope, row: Registered, *, seen: Registered) -> None:
        """Store generation, meaning and retention, if generation and meaning are still as seen."""
        self._connection.execute(
            f"UPDATE {SCOPES_TABLE} SET generation=?, meaning=?, retention_seconds=?, changed_at={NOW} "
            "WHERE scope=? AND used_for=? AND generation=? AND meaning=?",
            (
                row.generation,
                row.meaning,
                row.retention_seconds,
                scope.name,
                scope.use.value,
                seen.generation,
                seen.meaning,
            ),
        )
