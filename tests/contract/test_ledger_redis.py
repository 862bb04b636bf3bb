"""The ledger suite on Redis."""

from datetime import timedelta

import pytest
from oncesink.connectors.contract import Ledger
from oncesink.connectors.redis_ledger import RedisLedger

from tests.contract.ledger_contract import ConcurrentLedgerContract, PlainLedgerContract


class TestRedisLedger(PlainLedgerContract, ConcurrentLedgerContract):
    """A real server, empty for each test."""

    @pytest.fixture(autouse=True)
    def store(self, redis_url: str) -> None:
        """Take an empty Redis."""
        self.url = redis_url

    def make(self) -> RedisLedger:
        """Return a recipe on it."""
        return RedisLedger(self.url, retention=timedelta(days=1))

    def test_it_is_a_ledger_that_many_machines_share(self) -> None:
        """The recipe fulfils the protocol."""
        assert isinstance(self.make(), Ledger)
        assert self.make().shared
