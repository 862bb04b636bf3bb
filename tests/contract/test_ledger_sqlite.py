"""The ledger suite on SQLite."""

from datetime import timedelta
from pathlib import Path

import pytest
from oncesink.connectors.contract import Ledger
from oncesink.connectors.sqlite_ledger import SQLiteLedger

from tests.contract.ledger_contract import ConcurrentLedgerContract, ListingLedgerContract, TransactionalLedgerContract


class TestSQLiteLedger(ListingLedgerContract, TransactionalLedgerContract, ConcurrentLedgerContract):
    """A file of each test's own."""

    @pytest.fixture(autouse=True)
    def store(self, tmp_path: Path) -> None:
        """Name the file."""
        self.path = tmp_path / "once.db"

    def make(self) -> SQLiteLedger:
        """Return a recipe on this test's file."""
        return SQLiteLedger(f"sqlite:///{self.path}", retention=timedelta(days=1))

    def test_it_is_a_ledger_of_one_machine(self) -> None:
        """The recipe fulfils the protocol."""
        assert isinstance(self.make(), Ledger)
        assert not self.make().shared
