"""The suite on the memory sinks: fakes that are used in tests must keep what they stand for."""

from contextlib import closing
from typing import Any

import pytest
from oncesink.connectors.contract import Claim, Sink, SinkKind
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.memory import MemoryLedger, forget_all
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable

from tests.contract.outside_contract import BAD, SCOPE, SECONDS, OutsideContract, write


@pytest.fixture(autouse=True)
def empty_stores() -> None:
    """Begin with nothing in memory."""
    forget_all()


def refuse_bad(record: Any) -> str | None:
    """Refuse one record."""
    return "it is bad" if record == BAD else None


class TestMemorySink(OutsideContract):
    """One that writes every time."""

    def make(self) -> Sink:
        """Return the recipe."""
        return MemorySink("suite", refuses=refuse_bad)

    def effects(self) -> list[Any]:
        """Return the records that were applied."""
        return [each.record for each in MemorySink("suite").effects]


class TestMemorySinkThatDropsByKey(TestMemorySink):
    """One that recognises the idempotency key."""

    kind = SinkKind.DROPS_BY_KEY

    def make(self) -> Sink:
        """Return the recipe."""
        return MemorySink("suite", drops_by_key=True, refuses=refuse_bad)


class TestMemoryTable:
    """The transactional one: its rows come and go with its ledger's."""

    def test_rows_and_claims_come_and_go_together(self) -> None:
        """Neither can be there without the other."""
        table = MemoryTable(MemoryLedger("table"), "orders")
        ledger = table.ledger.open(SCOPE)
        with closing(table.open(SCOPE, ledger)) as session:
            with pytest.raises(ZeroDivisionError):
                self.write_and_fail(ledger, session)
            assert list(table.effects) == []
            assert ledger.read([write("a").digest]) == {}
            with ledger.transaction():
                self.claim_and_write(ledger, session, "a")
                assert list(table.effects) == []
        assert [each.record for each in table.effects] == [{"id": "a"}]
        assert set(ledger.read([write("a").digest])) == {write("a").digest}

    def write_and_fail(self, ledger: Any, session: Any) -> None:
        """Raise inside the transaction, after the write."""
        with ledger.transaction():
            self.claim_and_write(ledger, session, "a")
            raise ZeroDivisionError

    def claim_and_write(self, ledger: Any, session: Any, name: str) -> None:
        """Do what the gate does in one transaction."""
        claim = Claim(write(name).digest, None, None)
        ledger.claim([claim], owner=b"o" * 16, lease_seconds=None)
        session.write([write(name)], timeout_seconds=SECONDS)

    def test_it_opens_with_its_own_kind_of_ledger_only(self) -> None:
        """Without it there is no transaction to write in."""
        with pytest.raises(Misconfigured, match="needs its own ledger"):
            MemoryTable(MemoryLedger("table")).open(SCOPE, None)
