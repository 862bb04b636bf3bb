"""The table suite on SQLite."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors.sqlite_ledger import SQLiteLedger, SQLiteLedgerSession
from oncesink.connectors.sqlite_table import SQLiteTable

from tests.contract.sink_contract import SCOPE, TransactionalTableContract


class TestSQLiteTable(TransactionalTableContract):
    """Business rows in the ledger's file."""

    @pytest.fixture(autouse=True)
    def store(self, tmp_path: Path) -> None:
        """Make the table."""
        self.path = str(tmp_path / "once.db")
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute(
                "CREATE TABLE orders (id INTEGER PRIMARY KEY, order_id TEXT NOT NULL, "
                "amount INTEGER NOT NULL CHECK (amount >= 0), note TEXT, "
                "doubled INTEGER GENERATED ALWAYS AS (2 * amount))"
            )

    def recipe(self) -> SQLiteLedger:
        """Return the ledger's recipe."""
        return SQLiteLedger(self.path, retention=timedelta(days=1))

    def make(self, table: str = "orders", **settings: Any) -> SQLiteTable:
        """Return the table's recipe."""
        return SQLiteTable(self.recipe(), table, **settings)

    def open_ledger(self) -> SQLiteLedgerSession:
        """Open the ledger."""
        return self.recipe().open(SCOPE)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return (order_id, amount, note) of what is committed, in the order of insertion."""
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute("SELECT order_id, amount, note FROM orders ORDER BY id").fetchall()
