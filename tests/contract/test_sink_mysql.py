"""The table suites on MariaDB."""

from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.mysql_ledger import MySQLLedger, MySQLLedgerSession
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.secret import Secret

from tests.conftest import MySQLDatabase
from tests.contract.sink_contract import SCOPE, KeyedTableContract, TransactionalTableContract

ORDERS = """
CREATE TABLE orders (
  id BIGINT AUTO_INCREMENT PRIMARY KEY,
  order_id VARCHAR(20) NOT NULL,
  amount INT NOT NULL CHECK (amount >= 0),
  note TEXT NULL,
  occurrence VARBINARY(255) NULL,
  doubled INT AS (2 * amount) STORED
  {key}
) DEFAULT CHARSET=utf8mb4
"""


class OnMySQL:
    """A table in a database of each test's own."""

    key = ""

    @pytest.fixture(autouse=True)
    def store(self, mysql_database: MySQLDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the table; the password is found in the environment."""
        monkeypatch.setenv("TABLE_PASSWORD", mysql_database.password)
        self.database = mysql_database
        self.password = Secret.env("TABLE_PASSWORD")
        with closing(mysql_database.server.connect(mysql_database.name)) as connection:
            connection.query(ORDERS.format(key=self.key))
        self.create_tables()

    def create_tables(self) -> None:
        """Make the library's own tables."""
        raise NotImplementedError

    def rows(self) -> list[tuple[Any, ...]]:
        """Return (order_id, amount, note) of what is committed, in the order of insertion."""
        with closing(self.database.server.connect(self.database.name)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT order_id, amount, note FROM orders ORDER BY id")
            return list(cursor.fetchall())


class TestMySQLTableOnItsLedger(OnMySQL, TransactionalTableContract):
    """Business rows in the ledger's transaction."""

    def create_tables(self) -> None:
        """Make the ledger's tables."""
        self.recipe().create_tables()

    def recipe(self) -> MySQLLedger:
        """Return the ledger's recipe."""
        return MySQLLedger(self.database.url, retention=timedelta(days=1), password=self.password)

    def make(self, table: str = "orders", **settings: Any) -> MySQLTable:
        """Return the table's recipe."""
        return MySQLTable(self.recipe(), table, **settings)

    def open_ledger(self) -> MySQLLedgerSession:
        """Open the ledger."""
        return self.recipe().open(SCOPE)


class TestMySQLTableWithItsOwnKey(OnMySQL, KeyedTableContract):
    """The table's unique key does the work."""

    key = ", UNIQUE KEY (order_id)"

    def create_tables(self) -> None:
        """Make the table of scopes."""
        self.make().create_tables()

    def make(self, table: str = "orders", **settings: Any) -> MySQLTable:
        """Return the table's recipe."""
        return MySQLTable(self.database.url, table, unique=("order_id",), password=self.password, **settings)
