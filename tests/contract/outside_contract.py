"""What every sink promises that is neither a table nor in a ledger's transaction."""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.contract import (
    ALREADY,
    WRITTEN,
    Answer,
    Outcome,
    Scope,
    Sink,
    SinkKind,
    SinkSession,
    Use,
    Write,
)
from oncesink.connectors.memory import MemoryLedger

SCOPE = Scope(name="outside", use=Use.WRITE)
SECONDS = 10.0
BAD = {"id": "bad"}


def write(name: str) -> Write:
    """Make the write of a record whose digest depends on its id."""
    return Write({"id": name}, name.encode().ljust(16, b"."), None)


class OutsideContract(ABC):
    """The suite for one sink, which refuses `BAD` where it can refuse at all."""

    kind = SinkKind.EXTERNAL
    refuses = True

    @abstractmethod
    def make(self) -> Sink:
        """Return the recipe; all recipes of one test lead to one place, empty at its start."""

    @abstractmethod
    def effects(self) -> list[Any]:
        """Return the records that were applied, in order."""

    def open(self, sink: Sink | None = None) -> SinkSession:
        """Open a sink as a gate with a ledger does."""
        return (sink or self.make()).open(SCOPE, MemoryLedger("outside").open(SCOPE))

    def apply(self, *names: str) -> Sequence[Answer]:
        """Write records of these ids by one call."""
        return self.open().write([write(name) for name in names], timeout_seconds=SECONDS)

    def test_writes_are_answered_in_order_and_applied(self) -> None:
        """Each record is one effect."""
        assert list(self.apply("b", "a")) == [WRITTEN, WRITTEN]
        assert self.effects() == [{"id": "b"}, {"id": "a"}]

    def test_no_writes_are_no_answers(self) -> None:
        """An empty call is allowed and does nothing."""
        assert list(self.apply()) == []
        assert self.effects() == []

    def test_a_refused_record_is_not_applied_and_the_others_are(self) -> None:
        """An answer a record, not a batch."""
        if not self.refuses:
            pytest.skip("it takes every record")
        assert [each.outcome for each in self.apply("a", "bad", "c")] == [
            Outcome.WRITTEN,
            Outcome.REJECTED,
            Outcome.WRITTEN,
        ]
        assert self.effects() == [{"id": "a"}, {"id": "c"}]

    def test_a_second_write_of_a_key_does_what_the_kind_says(self) -> None:
        """The gate believes it: what drops by key is written again after a crash without a question."""
        self.apply("a")
        again = list(self.apply("b", "a"))
        if self.kind is SinkKind.DROPS_BY_KEY:
            assert again == [WRITTEN, ALREADY]
            assert self.effects() == [{"id": "a"}, {"id": "b"}]
        else:
            assert again == [WRITTEN, WRITTEN]
            assert self.effects() == [{"id": "a"}, {"id": "b"}, {"id": "a"}]

    def test_a_probe_tells_what_is_there(self) -> None:
        """Nothing is written by asking."""
        if not self.make().can_probe:
            pytest.skip("it cannot be asked")
        self.apply("a")
        told = self.open().probe([write("b"), write("a")], timeout_seconds=SECONDS)
        assert told[0] is None
        assert told[1] is not None
        assert self.effects() == [{"id": "a"}]

    def test_it_says_what_it_is(self) -> None:
        """The gate goes by that."""
        sink = self.make()
        assert isinstance(sink, Sink)
        assert sink.kind is self.kind
        assert sink.target
        assert sink.timeout > timedelta(0)
        assert isinstance(self.open(sink), SinkSession)

    def test_it_opens_without_a_ledger(self) -> None:
        """As a place for dead letters it has none."""
        session = self.make().open(SCOPE, None)
        assert list(session.write([write("a")], timeout_seconds=SECONDS)) == [WRITTEN]
        session.close()

    def test_the_recipe_travels_to_workers(self) -> None:
        """It is picklable, and opens there."""
        sink = pickle.loads(pickle.dumps(self.make()))
        assert sink == self.make()
        self.open(sink).write([write("a")], timeout_seconds=SECONDS)
        assert self.effects() == [{"id": "a"}]

    def test_close_may_be_repeated(self) -> None:
        """Whoever cleans up twice does no harm: what is written stays, and another session goes on."""
        session = self.open()
        session.write([write("a")], timeout_seconds=SECONDS)
        session.close()
        session.close()
        self.apply("b")
        assert self.effects() == [{"id": "a"}, {"id": "b"}]
