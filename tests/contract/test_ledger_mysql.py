"""The ledger suite on MariaDB."""

from datetime import timedelta

import pytest
from oncesink.connectors.contract import Ledger
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.secret import Secret

from tests.conftest import MySQLDatabase
from tests.contract.ledger_contract import ConcurrentLedgerContract, ListingLedgerContract, TransactionalLedgerContract


class TestMySQLLedger(ListingLedgerContract, TransactionalLedgerContract, ConcurrentLedgerContract):
    """A real server, with an empty database for each test."""

    @pytest.fixture(autouse=True)
    def store(self, mysql_database: MySQLDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the tables; the password is found in the environment."""
        monkeypatch.setenv("LEDGER_PASSWORD", mysql_database.password)
        self.url = mysql_database.url
        self.make().create_tables()

    def make(self) -> MySQLLedger:
        """Return a recipe on this test's database."""
        return MySQLLedger(self.url, retention=timedelta(days=1), password=Secret.env("LEDGER_PASSWORD"))

    def test_it_is_a_ledger_that_many_machines_share(self) -> None:
        """The recipe fulfils the protocol."""
        assert isinstance(self.make(), Ledger)
        assert self.make().shared
