"""The ledger suite on the fake in memory."""

import uuid

import pytest
from oncesink.connectors.memory import MemoryLedger

from tests.contract.ledger_contract import ListingLedgerContract, TransactionalLedgerContract


class TestMemoryLedger(ListingLedgerContract, TransactionalLedgerContract):
    """A store of each test's own."""

    @pytest.fixture(autouse=True)
    def store(self) -> None:
        """Name the store."""
        self.name = uuid.uuid4().hex

    def make(self) -> MemoryLedger:
        """Return a recipe on this test's store."""
        return MemoryLedger(self.name)
