"""What every table sink promises, whatever the database."""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from oncesink.connectors.contract import (
    ALREADY,
    WRITTEN,
    Answer,
    Claim,
    LedgerSession,
    Scope,
    Sink,
    SinkKind,
    SinkSession,
    Use,
    Write,
)
from oncesink.connectors.errors import Misconfigured, Rejected

from tests.contract.ledger_contract import digest

SCOPE = Scope(name="orders", use=Use.WRITE)
OWNER = b"o" * 16
SECONDS = 20.0


class Order(NamedTuple):
    """A record as a Beam schema gives it."""

    order_id: str
    amount: int


@dataclass
class OrderClass:
    """A record as a program may define it."""

    order_id: str
    amount: int


def write(order_id: str, amount: int = 1, **more: object) -> Write:
    """Make a write of one order."""
    return of({"order_id": order_id, "amount": amount, **more})


def of(record: Any, number: int = 0, occurrence: bytes | None = None) -> Write:
    """Make a write of any record."""
    return Write(record, digest(number or hash(str(record)) % 2**40), occurrence)


class TableContract(ABC):
    """The suite for a table `orders(order_id, amount NOT NULL >= 0, note)`; each subclass is one sink."""

    @abstractmethod
    def make(self, **settings: Any) -> Sink:
        """Return a recipe; all recipes of one test lead to one table, empty at its start."""

    @abstractmethod
    def open(self, sink: Sink, stack: ExitStack) -> SinkSession:
        """Open a sink, with its ledger if it has one, until the stack is closed."""

    @abstractmethod
    def rows(self) -> list[tuple[Any, ...]]:
        """Return (order_id, amount, note) of what is committed, in the order of insertion."""

    @abstractmethod
    def apply(self, session: SinkSession, writes: Sequence[Write]) -> Sequence[Answer]:
        """Write and commit."""

    @pytest.fixture
    def opened(self) -> Iterator[ExitStack]:
        """Close at the end what a test opened."""
        with ExitStack() as stack:
            yield stack

    @pytest.fixture
    def session(self, opened: ExitStack) -> SinkSession:
        """Open the sink."""
        return self.open(self.make(), opened)

    def test_writes_are_answered_in_order_and_stored(self, session: SinkSession) -> None:
        """Each record is one row."""
        writes = [write("b", 2), write("a", 1)]
        assert self.apply(session, writes) == [WRITTEN, WRITTEN]
        assert self.rows() == [("b", 2, None), ("a", 1, None)]

    def test_no_writes_are_no_answers(self, session: SinkSession) -> None:
        """An empty call is allowed."""
        assert self.apply(session, []) == []

    @pytest.mark.parametrize(
        "record",
        [
            {"order_id": "a", "amount": 1},
            Order("a", 1),
            OrderClass("a", 1),
            b'{"amount": 1, "order_id": "a"}',
            '{"order_id": "a", "amount": 1}',
        ],
    )
    def test_every_kind_of_record_gives_the_same_row(self, session: SinkSession, record: Any) -> None:
        """The record's kind does not matter, nor does the order of its fields."""
        self.apply(session, [of(record)])
        assert self.rows() == [("a", 1, None)]

    def test_records_of_a_batch_may_have_different_fields(self, session: SinkSession) -> None:
        """What a record lacks gets the column's default."""
        self.apply(session, [write("a"), write("b", note="n"), write("c")])
        assert self.rows() == [("a", 1, None), ("b", 1, "n"), ("c", 1, None)]

    @pytest.mark.parametrize(
        "note", ["it's", 'say "x"', "back\\slash", "\\'; DROP TABLE orders; --", "%s %", "a\nb", "é😀"]
    )
    def test_text_arrives_as_it_is(self, session: SinkSession, note: str) -> None:
        """Nothing in a value can change the statement."""
        self.apply(session, [write("a", note=note), write("b")])
        assert self.rows() == [("a", 1, note), ("b", 1, None)]

    @pytest.mark.parametrize("note", [{"k": [1, "é"]}, ["x"], {}])
    def test_nested_values_become_json(self, session: SinkSession, note: object) -> None:
        """A text column takes them."""
        self.apply(session, [write("a", note=note)])
        assert self.rows()[0][2] in ('{"k":[1,"é"]}', '["x"]', "{}")

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            ({"order_id": "x", "amount": -1}, "refused"),
            ({"order_id": "x", "amount": None}, "refused"),
            ({"order_id": "x", "amount": 1, "unknown": 2}, "wrong_type"),
            ({"order_id": "x", "amount": float("nan")}, "not_finite"),
            ({"order_id": "x", "amount": 1, "note": "\ud800"}, "not_unicode"),
            ({"order_id": "x", "amount": 1, "note": object()}, "wrong_type"),
            ({"order_id": "x", "amount": 1, "note": {"k": object()}}, "wrong_type"),
            ({"order_id": "x", "amount": 1, "note": [float("inf")]}, "not_finite"),
            (b"{", "not_json"),
            (17, "wrong_type"),
            ({}, None),
        ],
    )
    def test_one_bad_record_keeps_its_batch_out(self, session: SinkSession, bad: Any, reason: str | None) -> None:
        """`Rejected` says that nothing was applied; without the bad record the rest goes through."""
        with pytest.raises(Rejected) as rejected:
            self.apply(session, [write("a"), of(bad), write("b")])
        assert reason is None or rejected.value.reason == reason
        assert self.rows() == []
        assert self.apply(session, [write("a"), write("b")]) == [WRITTEN, WRITTEN]
        assert [row[0] for row in self.rows()] == ["a", "b"]

    def test_columns_choose_fields_paths_and_functions(self, opened: ExitStack) -> None:
        """Other fields of the record are left out."""
        columns = {"order_id": ("order", "id"), "amount": "amount", "note": note_of}
        session = self.open(self.make(columns=columns), opened)
        self.apply(
            session, [of({"order": {"id": "a"}, "amount": 2, "offset": 7}), of({"order": {"id": "b"}, "amount": 3})]
        )
        assert self.rows() == [("a", 2, "at 7"), ("b", 3, "at None")]

    def test_a_record_that_a_function_of_columns_cannot_read_is_rejected(self, opened: ExitStack) -> None:
        """One odd record is refused by name; it does not fail its batch again and again."""
        columns = {"order_id": "order_id", "amount": price_of}
        session = self.open(self.make(columns=columns), opened)
        for odd in (write("b", price="much"), write("b", price=None), write("b")):
            with pytest.raises(Rejected, match=r"the function of column amount raised \w+") as rejected:
                self.apply(session, [write("a", price="2"), odd])
            assert rejected.value.reason == "wrong_type"
        assert self.rows() == []
        self.apply(session, [write("a", price="2")])
        assert self.rows() == [("a", 2, None)]

    def test_a_record_without_a_field_of_columns_is_rejected(self, opened: ExitStack) -> None:
        """NULL in its place would be a row that no record had. None that the record says itself is NULL."""
        columns = {"order_id": "order_id", "amount": "amount", "note": ("more", "note")}
        session = self.open(self.make(columns=columns), opened)
        lacking: list[dict[str, Any]] = [{}, {"more": {}}, {"more": None}]
        for more in lacking:
            with pytest.raises(Rejected, match=r"note.*optional=") as rejected:
                self.apply(session, [write("a", more={"note": "n"}), write("b", **more)])
            assert rejected.value.reason == "no_field"
        assert self.rows() == []
        self.apply(session, [write("c", more={"note": None})])
        assert self.rows() == [("c", 1, None)]

    def test_an_optional_column_gets_its_default(self, opened: ExitStack) -> None:
        """Where the settings say so, a record may lack its field."""
        columns = {"order_id": "order_id", "amount": "amount", "note": "note"}
        session = self.open(self.make(columns=columns, optional=("note",)), opened)
        self.apply(session, [write("a"), write("b", note="n")])
        assert self.rows() == [("a", 1, None), ("b", 1, "n")]
        with pytest.raises(Rejected, match="amount"):
            self.apply(session, [of({"order_id": "c"})])

    def test_optional_columns_must_be_among_the_chosen(self) -> None:
        """A setting that would do nothing is refused."""
        with pytest.raises(Misconfigured, match="note"):
            self.make(columns={"order_id": "order_id", "amount": "amount"}, optional=("note",))

    def test_a_missing_column_is_an_error_at_start(self, opened: ExitStack) -> None:
        """It says what to do."""
        columns = {"order_id": "order_id", "amount": "amount", "nothere": "x"}
        with pytest.raises(Misconfigured, match="ALTER TABLE orders ADD COLUMN nothere"):
            self.open(self.make(columns=columns), opened)

    def test_a_missing_table_is_an_error_at_start(self, opened: ExitStack) -> None:
        """It names the table."""
        with pytest.raises(Misconfigured, match=r"nowhere.* is missing"):
            self.open(self.make(table="nowhere"), opened)

    def test_the_recipe_is_a_picklable_sink(self, opened: ExitStack) -> None:
        """It fulfils the protocol, travels to workers and opens there."""
        recipe = self.make(columns={"order_id": "order_id", "amount": "amount", "note": note_of})
        assert isinstance(recipe, Sink)
        again = pickle.loads(pickle.dumps(recipe))
        assert again == recipe
        assert isinstance(self.open(again, opened), SinkSession)
        assert recipe.atomic
        assert recipe.target.endswith(("orders", "orders(order_id)"))

    def test_close_may_be_repeated(self, opened: ExitStack) -> None:
        """Whoever cleans up twice does no harm: what is written stays, and another session goes on."""
        session = self.open(self.make(), opened)
        self.apply(session, [write("a")])
        session.close()
        session.close()
        self.apply(self.open(self.make(), opened), [write("b")])
        assert [row[0] for row in self.rows()] == ["a", "b"]


class TransactionalTableContract(TableContract):
    """What holds in addition where rows and claims are one transaction."""

    @abstractmethod
    def open_ledger(self) -> LedgerSession:
        """Open the ledger that the recipes write with."""

    def open(self, sink: Sink, stack: ExitStack) -> SinkSession:
        """Open a sink on a ledger session that `apply` uses."""
        self.ledger = stack.enter_context(closing(self.open_ledger()))
        return stack.enter_context(closing(sink.open(SCOPE, self.ledger)))

    def apply(self, session: SinkSession, writes: Sequence[Write]) -> Sequence[Answer]:
        """Claim and write in one transaction."""
        with self.ledger.transaction():
            self.ledger.claim([Claim(each.digest, None, None) for each in writes], owner=OWNER, lease_seconds=None)
            return session.write(writes, timeout_seconds=SECONDS)

    def test_it_says_what_it_is(self) -> None:
        """The gate goes by that."""
        assert self.make().kind is SinkKind.TRANSACTIONAL
        assert not self.make().can_probe

    def test_rows_and_claims_come_and_go_together(self, session: SinkSession) -> None:
        """Neither can be there without the other."""
        bad = [write("a"), of({"order_id": "x", "amount": -1})]
        with pytest.raises(Rejected):
            self.apply(session, bad)
        assert self.ledger.read([each.digest for each in bad]) == {}
        good = [write("a")]
        self.apply(session, good)
        assert self.ledger.read([good[0].digest])[good[0].digest].finished
        assert len(self.rows()) == 1

    def test_nothing_is_there_before_the_commit(self, session: SinkSession) -> None:
        """An error after the write undoes it."""
        with pytest.raises(ZeroDivisionError):
            self.write_and_fail(session)
        assert self.rows() == []

    def write_and_fail(self, session: SinkSession) -> None:
        """Raise inside the transaction, after the write."""
        with self.ledger.transaction():
            session.write([write("a")], timeout_seconds=SECONDS)
            assert self.rows() == []
            raise ZeroDivisionError

    def test_outside_a_transaction_it_refuses(self, session: SinkSession) -> None:
        """A row without its claim would be written again."""
        with pytest.raises(Misconfigured):
            session.write([write("a")], timeout_seconds=SECONDS)
        assert self.rows() == []

    def test_it_opens_with_its_own_ledger_only(self) -> None:
        """No ledger, or another one, cannot commit together with it."""
        with pytest.raises(Misconfigured, match="ledger"):
            self.make().open(SCOPE, None)


class KeyedTableContract(TableContract):
    """What holds in addition where the table's own unique key, over `order_id`, recognises a second write."""

    def open(self, sink: Sink, stack: ExitStack) -> SinkSession:
        """Open a sink that has no ledger."""
        return stack.enter_context(closing(sink.open(SCOPE, None)))

    def apply(self, session: SinkSession, writes: Sequence[Write]) -> Sequence[Answer]:
        """Write."""
        return session.write(writes, timeout_seconds=SECONDS)

    def test_it_says_what_it_is(self) -> None:
        """The gate goes by that."""
        assert self.make().kind is SinkKind.DROPS_BY_KEY
        assert self.make().remembers is None
        assert self.make().can_probe

    def test_a_second_write_changes_nothing(self, session: SinkSession) -> None:
        """What was there is told from what is new, in order."""
        self.apply(session, [write("a", 1), write("b", 2)])
        answers = self.apply(session, [write("c", 3), write("a", 99), write("d", 4), write("b", 98)])
        assert answers == [WRITTEN, ALREADY, WRITTEN, ALREADY]
        assert self.rows() == [("a", 1, None), ("b", 2, None), ("c", 3, None), ("d", 4, None)]

    def test_equal_keys_in_one_call_are_one_row(self, session: SinkSession) -> None:
        """Their digests may differ; the first of them is written."""
        writes = [of({"order_id": "a", "amount": number}, number) for number in (1, 2, 3)]
        assert self.apply(session, writes) == [WRITTEN, ALREADY, ALREADY]
        assert self.rows() == [("a", 1, None)]

    def test_a_probe_tells_what_is_there(self, session: SinkSession) -> None:
        """Nothing is written by asking."""
        self.apply(session, [write("a")])
        assert session.probe([write("b"), write("a")], timeout_seconds=SECONDS) == [None, ALREADY]
        assert len(self.rows()) == 1

    def test_the_occurrence_that_wrote_first_is_told(self, opened: ExitStack) -> None:
        """So a replay is told from a second send; also among equal keys of one call."""
        sink = self.make(occurrence_column="occurrence")
        assert sink.tells_occurrence
        session = self.open(sink, opened)
        first = of({"order_id": "a", "amount": 1}, 1, b"topic/0/\x00'1")
        self.apply(session, [first, of({"order_id": "n", "amount": 1}, 2, None)])
        again = [
            of({"order_id": key, "amount": 1}, number, b"later") for number, key in enumerate(("a", "n", "z", "z"), 5)
        ]
        told = [(answer.outcome.value, answer.occurrence) for answer in self.apply(session, again)]
        assert told == [("already", first.occurrence), ("already", None), ("written", None), ("already", b"later")]

    def test_a_record_without_the_key_is_rejected(self, session: SinkSession) -> None:
        """Missing keys must not become one shared key."""
        for batch in ([of({"amount": 1})], [write("a"), of({"amount": 1})]):
            with pytest.raises(Rejected) as rejected:
                self.apply(session, batch)
            assert rejected.value.reason == "no_key"

    def test_the_scope_is_registered_without_a_ledger(self, session: SinkSession, opened: ExitStack) -> None:
        """Its id is the namespace of a cache, the same for every worker."""
        assert session.store_id is not None
        assert len(session.store_id) == 16
        assert self.open(self.make(), opened).store_id == session.store_id


def price_of(record: Any) -> int:
    """Raise what bad prices lead to: an arithmetic, a type or a look-up error."""
    return int(Decimal(record["price"]))


def note_of(record: Any) -> str:
    """Make a value of several parts of a record."""
    return f"at {record.get('offset')}"
