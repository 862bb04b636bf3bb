"""What every table that keeps the newest version of each key promises, whatever the database."""

import itertools
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import strategies as st
from oncesink.connectors import STALE, WRITTEN, Answer, Ledger, Misconfigured, Rejected, Sink, Versioned, Write
from oncesink.transforms import Fields, Gate, OnceWriter, Results, SourcePosition

from tests.contract.ledger_contract import digest

SECONDS = 20.0
COLUMNS = {"order_id": "order_id", "version": "version", "amount": "amount", "note": "note", "gone": "gone"}
OPTIONAL = ("note", "gone")
BY = Versioned(by="version", deleted="gone")

AnyRow = tuple[Any, ...]


def order(order_id: str, version: object, amount: int = 1, **more: object) -> dict[str, Any]:
    """Make a record of an order."""
    return {"order_id": order_id, "version": version, "amount": amount, **more}


def deleted(order_id: str, version: int) -> dict[str, Any]:
    """Make a record that deletes an order, and says nothing else of it."""
    return {"order_id": order_id, "version": version, "gone": True}


BAD: list[tuple[Any, str | None]] = [
    (order("a", None), "no_field"),
    (order("a", "7"), "wrong_type"),
    (order("a", 7.0), "wrong_type"),
    (order("a", True), "wrong_type"),
    (order("a", datetime(2026, 1, 1)), "wrong_type"),  # noqa: DTZ001
    ({"order_id": "a", "amount": 1}, "no_field"),
    ({"order_id": "a", "version": 1}, "no_field"),
    ({"order_id": "a", "gone": True}, "no_field"),
    ({"version": 1, "amount": 1}, "no_key"),
    ({"version": 1, "gone": True}, "no_key"),
    (order("a", 1, gone="yes"), "wrong_type"),
    (order("a", 1, gone=2), "wrong_type"),
    (order("a", 1, -1), "refused"),
    (order("a", 2**70), None),
]

CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"unique": ()}, "needs unique"),
    ({"columns": None, "optional": ()}, "needs columns"),
    ({"versioned": Versioned(by="nothere")}, "nothere"),
    ({"versioned": Versioned(by="version", deleted="nothere")}, "nothere"),
    ({"versioned": Versioned(by="order_id")}, "same in all versions"),
    ({"optional": ("version",)}, "every record"),
    ({"optional": ("nothere",)}, "nothere"),
]

MISFITS = [
    (("amount",), BY, "unique key"),
    (("order_id",), Versioned(by="note"), "note"),
    (("order_id",), Versioned(by="loose"), "loose"),
    (("order_id",), Versioned(by="amount", deleted="gone"), r"value for orders\.version"),
]


def writes(records: Sequence[Any]) -> list[Write]:
    """Make writes of distinct digests."""
    return [Write(record, digest(number), None) for number, record in enumerate(records)]


class VersionedContract(ABC):
    """The suite for `orders(order_id, version, amount >= 0, note, gone)`; key and version are NOT NULL.

    `amount` has the default 0, `note` a unique key of its own.
    """

    equal = STALE
    """What a version that the row bears already is answered with."""

    @abstractmethod
    def make(self, **settings: Any) -> Sink:
        """Return a recipe; all recipes of one test lead to one table, empty at its start."""

    @abstractmethod
    def ledger(self) -> Ledger | None:
        """Return the ledger of the gate."""

    @abstractmethod
    def apply(self, records: Sequence[Any], sink: Sink | None = None) -> Sequence[Answer]:
        """Write and commit."""

    @abstractmethod
    def sql(self, statement: str) -> Sequence[AnyRow]:
        """Run a statement behind the library's back."""

    def rows(self) -> list[AnyRow]:
        """Return (order_id, version, amount, note, gone), by order."""
        found = self.sql("SELECT order_id, version, amount, note, gone FROM orders ORDER BY order_id")
        return [tuple(row) for row in found]

    @pytest.fixture
    def stack(self) -> Iterator[ExitStack]:
        """Close at the end what a test opened."""
        with ExitStack() as stack:
            yield stack

    def gate(self, **settings: Any) -> Gate:
        """Return a gate for this table."""
        usual: dict[str, Any] = {
            "scope": "orders",
            "key": Fields("order_id", "version"),
            "occurrence": SourcePosition("s", "offset"),
            "ledger": self.ledger(),
            "rejected": "output",
        }
        return Gate(**(usual | settings))

    def writer(self, stack: ExitStack) -> OnceWriter:
        """Open a writer."""
        return stack.enter_context(OnceWriter(self.gate(), self.make()))

    def test_newer_versions_replace_older_ones(self) -> None:
        """All chosen columns are replaced; what an optional field lacks goes back to its default."""
        assert self.apply([order("a", 1, 10, note="first"), order("b", 1, 20)]) == [WRITTEN, WRITTEN]
        assert self.apply([order("a", 2, 11), order("c", 1, 30)]) == [WRITTEN, WRITTEN]
        assert self.rows() == [("a", 2, 11, None, 0), ("b", 1, 20, None, 0), ("c", 1, 30, None, 0)]

    def test_what_comes_late_changes_nothing_and_is_told(self) -> None:
        """An older version is stale; an equal one is not written twice."""
        self.apply([order("a", 5, 50)])
        assert self.apply([order("a", 4, 40), order("b", 1)]) == [STALE, WRITTEN]
        assert self.apply([order("a", 5, 51)]) == [self.equal]
        assert self.rows()[0] == ("a", 5, 50, None, 0)

    def test_of_several_versions_in_a_batch_the_newest_wins(self) -> None:
        """Exactly one of a key is written; versions of both signs, and beyond 32 bits."""
        batch = [order("a", -3, 1), order("a", 2**40, 2), order("b", 7, 3), order("a", 5, 4), order("b", 6, 5)]
        assert self.apply(batch) == [STALE, WRITTEN, WRITTEN, STALE, STALE]
        assert self.rows() == [("a", 2**40, 2, None, 0), ("b", 7, 3, None, 0)]
        assert self.apply([order("a", 2**41, 6), order("a", 2**41, 7)]) == [WRITTEN, self.equal]
        assert self.rows()[0] == ("a", 2**41, 6, None, 0)

    def test_a_deleted_row_is_not_brought_back_by_what_is_older(self) -> None:
        """Its tombstone keeps key and version, and forgets the rest; a newer version lives again."""
        self.apply([order("a", 1, 10, note="secret")])
        assert self.apply([deleted("a", 3), deleted("unseen", 8)]) == [WRITTEN, WRITTEN]
        assert self.rows() == [("a", 3, 0, None, 1), ("unseen", 8, 0, None, 1)]
        assert self.apply([order("a", 2, 20), order("unseen", 7)]) == [STALE, STALE]
        assert self.rows() == [("a", 3, 0, None, 1), ("unseen", 8, 0, None, 1)]
        assert self.apply([order("a", 4, 40)]) == [WRITTEN]
        assert self.rows()[0] == ("a", 4, 40, None, 0)

    def test_a_tombstone_does_not_keep_what_its_record_says_besides(self) -> None:
        """Change streams send the last values along with a delete."""
        self.apply([order("a", 1, 10, note="secret", gone=1)])
        assert self.rows() == [("a", 1, 0, None, 1)]

    def test_a_bad_record_is_rejected_with_its_batch(self) -> None:
        """Versions that cannot be compared above all; nothing of the batch is applied."""
        for bad, reason in BAD:
            with pytest.raises(Rejected) as rejected:
                self.apply([order("b", 1), bad])
            assert reason in (None, rejected.value.reason), bad
            assert self.rows() == []

    def test_another_unique_key_is_never_mistaken_for_the_declared_one(self) -> None:
        """An upsert that runs into it is refused, whether its own row is there or not; the other row stays."""
        self.apply([order("a", 1, 10, note="n"), order("b", 1, 20)])
        for order_id in ("b", "c"):
            with pytest.raises(Rejected):
                self.apply([order(order_id, 9, 90, note="n")])
        assert self.rows() == [("a", 1, 10, "n", 0), ("b", 1, 20, None, 0)]

    def test_date_times_are_versions_too(self) -> None:
        """Compared as moments: an aware one by its time in UTC."""
        self.moments()
        noon = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=timezone.utc)
        eastern = timezone(timedelta(hours=3))
        micro = timedelta(microseconds=1)
        sink = self.make(versioned=Versioned(by="version"), columns=dict(list(COLUMNS.items())[:3]), optional=())
        assert self.apply([order("a", noon, 1)], sink) == [WRITTEN]
        assert self.apply([order("a", (noon - micro).astimezone(eastern), 2)], sink) == [STALE]
        assert self.apply([order("a", noon.replace(microsecond=0), 3)], sink) == [STALE]
        assert self.apply([order("a", noon.astimezone(eastern), 4)], sink) == [self.equal]
        assert self.apply([order("a", (noon + micro).replace(tzinfo=None), 5)], sink) == [WRITTEN]
        assert self.sql("SELECT amount FROM orders")[0][0] == 5
        with pytest.raises(Rejected) as rejected:
            self.apply([order("a", 7)], sink)
        assert rejected.value.reason == "wrong_type"

    @abstractmethod
    def moments(self) -> None:
        """Make the column of the version one of date-times."""

    def test_settings_that_contradict_are_refused(self) -> None:
        """When the recipe is made, and by name."""
        for settings_, told_ in CONTRADICTIONS:
            with pytest.raises(Misconfigured, match=told_):
                self.make(**settings_)

    def test_a_table_that_does_not_fit_is_refused(self) -> None:
        """By `prove`, before the scope is registered: its key, its version's type, columns that cannot be empty."""
        for unique, versioned, told_ in MISFITS:
            sink = self.make(columns={**COLUMNS, "loose": "loose"}, unique=unique, versioned=versioned, optional=())
            with pytest.raises(Misconfigured, match=told_):
                sink.prove()  # type: ignore[attr-defined]

    def test_the_gate_wants_the_version_in_the_key(self, stack: ExitStack) -> None:
        """Without it an update would be taken for a second send of what it replaces."""
        with pytest.raises(Misconfigured, match=r"Fields\('order_id', 'version'\)"):
            OnceWriter(self.gate(key=Fields("order_id")), self.make())

    def test_the_recipe_travels(self) -> None:
        """It names its versions in the scope's meaning."""
        sink = self.make()
        assert pickle.loads(pickle.dumps(sink)) == sink
        assert sink.target.endswith("orders(order_id) newest by version, deleted by gone")

    def test_a_writer_tells_written_stale_and_replayed(self, stack: ExitStack) -> None:
        """Stale records stand on `written`, marked, and are counted apart."""
        writer = self.writer(stack)
        results = writer.write([order("a", version, version, offset=version) for version in (2, 3, 1)])
        assert told(results) == [(2, "stale"), (3, "written"), (1, "stale")]
        assert told(writer.write([order("a", 3, 3, offset=3)])) == [(3, "replayed")]
        assert told(writer.write([order("a", 4, 4, offset=4)])) == [(4, "written")]
        assert [writer.metrics[name] for name in ("written", "stale", "replayed")] == [2, 2, 1]  # type: ignore[index]

    def test_a_bad_version_does_not_keep_the_others_out(self, stack: ExitStack) -> None:
        """Around it the batch goes through, and the newest still wins."""
        bad = [order("a", "x", offset=10), order("b", None, offset=11)]
        batch = [order("a", version, version, offset=version) for version in (1, 3, 2)]
        results = self.writer(stack).write([batch[0], bad[0], batch[1], bad[1], batch[2]])
        assert sorted(each.reason for each in results.rejected) == ["no_key", "wrong_type"]
        assert self.rows() == [("a", 3, 3, None, 0)]

    @pytest.fixture
    def shared(self, stack: ExitStack) -> OnceWriter:
        """Open one writer for all examples of a test: each has keys of its own."""
        self.examples = itertools.count()
        return self.writer(stack)

    def converges(self, data: st.DataObject, writer: OnceWriter) -> None:
        """Draw upserts and deletes of some keys, each at least once, in any order and batching, some again."""
        example = next(self.examples)
        drawn = data.draw(st.sets(st.tuples(st.sampled_from("ab"), st.integers(1, 6)), min_size=1))
        versions = sorted((f"{key}{example}", version) for key, version in drawn)
        kinds = {each: data.draw(st.booleans(), label=f"deletes {each}") for each in versions}
        history = data.draw(st.permutations(versions)) + data.draw(st.lists(st.sampled_from(versions), max_size=6))
        effects = 0
        while history:
            size = data.draw(st.integers(1, 5))
            batch, history = history[:size], history[size:]
            results = writer.write([made(each, deletes=kinds[each]) for each in batch])
            assert len(results.written) == len(batch)
            effects += sum(not each.replayed and not each.stale for each in results.written)
        newest = {key: max(version for k, version in versions if k == key) for key, _ in versions}
        rows = [row for row in self.rows() if row[0] in newest]
        assert rows == [expected(key, newest[key], deletes=kinds[key, newest[key]]) for key in sorted(newest)]
        # Each key changed at least once; no version caused two effects.
        assert len(newest) <= effects <= len(versions)


def made(each: tuple[str, int], *, deletes: bool) -> dict[str, Any]:
    """Make the record of a key and a version."""
    key, version = each
    fields = deleted(key, version) if deletes else order(key, version, 10 * version)
    return {**fields, "offset": f"{key} {version}"}


def expected(key: str, version: int, *, deletes: bool) -> AnyRow:
    """Return the row that such a record leaves."""
    return (key, version, 0 if deletes else 10 * version, None, int(deletes))


def told(results: Results) -> list[tuple[int, str]]:
    """Return version and mark of each record on `written`."""
    return [
        (each.record["version"], "replayed" if each.replayed else "stale" if each.stale else "written")
        for each in results.written
    ]
