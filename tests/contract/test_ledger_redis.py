"""The ledger suite on Redis."""

from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from oncesink.connectors.contract import Finish, Ledger, Take
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.redis_ledger import RedisLedger
from oncesink.connectors.redis_ledger_session import RedisLedgerSession

from tests.contract.ledger_contract import (
    LEASE_SECONDS,
    SCOPE,
    A,
    B,
    ConcurrentLedgerContract,
    ListingLedgerContract,
    PlainLedgerContract,
    claims,
    digest,
    digests,
)


class TestRedisLedger(ListingLedgerContract, PlainLedgerContract, ConcurrentLedgerContract):
    """A real server, empty for each test."""

    @pytest.fixture(autouse=True)
    def store(self, redis_url: str) -> None:
        """Take an empty Redis."""
        self.url = redis_url

    def make(self) -> RedisLedger:
        """Return a recipe on it."""
        return RedisLedger(self.url, retention=timedelta(days=1), lists_open=True)

    def test_it_is_a_ledger_that_many_machines_share(self) -> None:
        """The recipe fulfils the protocol."""
        assert isinstance(self.make(), Ledger)
        assert self.make().shared


class TestRedisLedgerWithoutList(PlainLedgerContract):
    """As it is unless `lists_open` is asked for."""

    @pytest.fixture(autouse=True)
    def store(self, redis_url: str) -> None:
        """Take an empty Redis."""
        self.url = redis_url

    def make(self) -> RedisLedger:
        """Return a recipe on it."""
        return RedisLedger(self.url, retention=timedelta(days=1))

    def test_its_open_rows_cannot_be_listed(self, session: RedisLedgerSession) -> None:
        """It says what to set; it neither answers with nothing nor goes through the whole server."""
        for ask in (session.count_open, partial(session.open_rows, limit=1)):
            with pytest.raises(Misconfigured, match="lists_open=True"):
                ask(older_than_seconds=0.0)

    def test_a_list_that_is_behind_is_mended(self, session: RedisLedgerSession) -> None:
        """Jobs that do not keep it may finish, release and take over what stands in it."""
        listing = RedisLedger(self.url, retention=timedelta(days=1), lists_open=True)
        with closing(listing.open(SCOPE)) as lister:
            lister.claim(claims(1, 2, 3, 4), owner=A, lease_seconds=0.0)
            rows = session.read(digests(1, 2, 3, 4))
            session.finish([Finish(claims(1)[0])], owner=A)
            session.release(digests(2), owner=A)
            session.take([Take(digest(3), rows[digest(3)])], owner=B, lease_seconds=LEASE_SECONDS)
            assert lister.count_open(older_than_seconds=0.0) == (4, 0)
            assert [row.digest for row in lister.open_rows(older_than_seconds=0.0, limit=9).rows] == digests(4)
            assert lister.count_open(older_than_seconds=0.0) == (1, 0)


class TestRedisLedgerWithAudit(ListingLedgerContract, PlainLedgerContract):
    """One that may be written past while it is away: as long as it is there, nothing is different."""

    @pytest.fixture(autouse=True)
    def store(self, redis_url: str, tmp_path: Path) -> None:
        """Take an empty Redis and an empty folder."""
        self.url = redis_url
        self.folder = str(tmp_path / "audit")

    def make(self) -> RedisLedger:
        """Return a recipe on it."""
        return RedisLedger(
            self.url, retention=timedelta(days=1), lists_open=True, outage="at_least_once", audit=self.folder
        )
