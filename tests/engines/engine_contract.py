"""What every engine's binding promises, whatever the engine is."""

from __future__ import annotations

import json
import math
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from oncesink.connectors.contract import Sink
from oncesink.connectors.faults import Fault, Faults
from oncesink.connectors.faulty import FaultySink
from oncesink.connectors.memory import MemoryLedger, forget_all
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.sqlite_table import SQLiteTable
from oncesink.connectors.versioned import Versioned
from oncesink.transforms import Bloom, Fields, Gate, SourcePosition

Outcomes = Mapping[str, Sequence[Any]]
"""What came out of each output: `written` or `passed`, `duplicates`, `rejected`, `parked`."""

LEDGER = MemoryLedger("engine contract")
TABLE = MemoryTable(LEDGER)
GATE = Gate(
    scope="orders",
    key=Fields("id"),
    occurrence=SourcePosition("orders", "pos"),
    ledger=LEDGER,
    membership=Bloom(capacity=1000, error_rate=0.01),
    shards=4,
    rejected="output",
)
EXTERNAL = replace(GATE, on_replay="write", lease=timedelta(seconds=30))
ALONE = replace(GATE, ledger=None, membership=None)

SETUPS: dict[str, tuple[Gate, Any]] = {
    "transactional": (GATE, TABLE),
    "drops by key": (GATE, MemorySink(drops_by_key=True)),
    "external": (EXTERNAL, MemorySink()),
    "without a ledger": (ALONE, MemorySink(drops_by_key=True)),
}


class Order(NamedTuple):
    """An order as a NamedTuple."""

    id: int
    pos: int
    text: str


@dataclass
class OrderObject:
    """An order as a dataclass."""

    id: int
    pos: int
    text: str


def order(number: int, pos: int, text: str = "tea") -> dict[str, Any]:
    """Return a record: an order's number, where it was read, what was ordered."""
    return {"id": number, "pos": pos, "text": text}


def ids(outcomes: Sequence[Any]) -> list[int]:
    """Return the numbers of outcomes' orders, sorted."""
    return sorted(each.record["id"] for each in outcomes)


def effects(sink: Any) -> list[int]:
    """Return the numbers of the orders that a memory sink holds, sorted."""
    return sorted(each.record["id"] for each in sink.effects)


def refuse_odd(record: Any) -> str | None:
    """Refuse odd orders, as a sink."""
    return "odd" if record["id"] % 2 else None


class EngineContract(ABC):
    """The suite; each subclass is one engine."""

    @abstractmethod
    def run(self, records: Sequence[Any], gate: Gate, sink: Sink) -> Outcomes:
        """Run a job that writes records, from its start to its end. What it raises goes to the caller."""

    @abstractmethod
    def run_drop(self, records: Sequence[Any], gate: Gate) -> Outcomes:
        """Run a job that filters records."""

    @pytest.fixture(autouse=True)
    def _empty_stores(self) -> Iterator[None]:
        forget_all()
        yield
        forget_all()

    @pytest.mark.parametrize("kind", SETUPS)
    def test_a_second_run_writes_nothing_and_reports_replays(self, kind: str) -> None:
        """New keys cause one effect each; the same deliveries again cause none, and are written again, marked."""
        gate, sink = SETUPS[kind]
        records = [order(number, number) for number in range(20)]
        first = self.run(records, gate, sink)
        second = self.run(records, gate, sink)
        assert ids(first["written"]) == ids(second["written"]) == list(range(20))
        assert not any(each.replayed for each in first["written"])
        assert all(each.replayed for each in second["written"])
        assert not [*second["duplicates"], *second["rejected"], *second["parked"]]
        assert effects(sink) == list(range(20))

    @pytest.mark.parametrize("kind", ["transactional", "drops by key", "external"])
    def test_a_second_send_is_a_duplicate(self, kind: str) -> None:
        """Another delivery of a key changes nothing, whether it comes in the same job or in a later one."""
        gate, sink = SETUPS[kind]
        first = self.run([order(1, 0), order(2, 1), order(1, 2)], gate, sink)
        second = self.run([order(2, 9), order(3, 10)], gate, sink)
        assert ids(first["written"]) == [1, 2]
        assert ids(first["duplicates"]) == [1]
        assert ids(second["written"]) == [3]
        assert ids(second["duplicates"]) == [2]
        assert effects(sink) == [1, 2, 3]

    def test_versions_that_come_late_are_written_stale(self, tmp_path: Path) -> None:
        """Whatever shards they go through: the newest stays, and every record stands on `written`."""
        path = str(tmp_path / "versions.db")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE t (id INTEGER NOT NULL UNIQUE, version INTEGER NOT NULL)")
        ledger = SQLiteLedger(path, retention=timedelta(days=1))
        columns = {"id": "id", "version": "version"}
        table = SQLiteTable(ledger, "t", columns=columns, unique=("id",), versioned=Versioned(by="version"))
        gate = replace(GATE, ledger=ledger, key=Fields("id", "version"))
        records = [{"id": n % 4, "version": v, "pos": 10 * v + n % 4} for v in (3, 5, 1, 4, 2) for n in range(4)]
        first = self.run(records, gate, table)
        second = self.run([{"id": 0, "version": 0, "pos": 99}, *records[:4]], gate, table)
        assert len(first["written"]) == 20
        assert all(not each.stale for each in first["written"] if each.record["version"] == 5)
        assert sorted((each.stale, each.replayed) for each in second["written"]) == [(False, True)] * 4 + [
            (True, False)
        ]
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT id, version FROM t ORDER BY id").fetchall() == [(n, 5) for n in range(4)]

    def test_copies_of_one_delivery_in_one_run_are_written_once(self) -> None:
        """Each copy has its outcome, all but one of them a replay's."""
        found = self.run([order(1, 0)] * 3 + [order(1, 7)], GATE, TABLE)
        assert sorted(each.replayed for each in found["written"]) == [False, True, True]
        assert ids(found["duplicates"]) == [1]
        assert effects(TABLE) == [1]

    def test_unusable_records_are_rejected_with_their_reason_and_the_rest_goes_on(self) -> None:
        """No record without a key or with an impossible value is written, and none stops the others."""
        bad = [
            ({"pos": 1}, "no_key"),
            ({"id": None, "pos": 2}, "no_key"),
            ({"id": 3}, "no_position"),
            ({"id": math.nan, "pos": 4}, "not_finite"),
            ({"id": 5, "pos": 5, "text": math.inf}, "not_finite"),
            ({"id": "\ud800", "pos": 6}, "not_unicode"),
            (b'{"id": 7, "pos": 7, "text": "\\udfff"}', "not_unicode"),
            (b"{no json", "not_json"),
            ([1, 2], "wrong_type"),
        ]
        found = self.run([order(100, 100), *(record for record, _ in bad), order(101, 101)], GATE, TABLE)
        told = sorted((each.reason, repr(each.record)) for each in found["rejected"])
        assert told == sorted((reason, repr(record)) for record, reason in bad)
        assert ids(found["written"]) == effects(TABLE) == [100, 101]

    def test_a_key_that_comes_with_another_content_is_a_conflict(self) -> None:
        """A resend that says something else is not dropped in silence, and does not overwrite."""
        found = self.run([order(1, 0), order(2, 1), order(1, 2, "coffee")], GATE, TABLE)
        (conflict,) = found["rejected"]
        assert (conflict.reason, conflict.record["text"]) == ("conflict", "coffee")
        assert [each.record["text"] for each in TABLE.effects] == ["tea", "tea"]

    @pytest.mark.parametrize("kind", ["transactional", "drops by key"])
    def test_what_the_sink_refuses_is_rejected_and_may_come_again(self, kind: str) -> None:
        """It does not count as written: a sink that has changed its mind takes it."""
        gate, sink = SETUPS[kind]
        found = self.run([order(number, number) for number in range(6)], gate, replace(sink, refuses=refuse_odd))
        assert {each.reason for each in found["rejected"]} == {"refused"}
        assert ids(found["rejected"]) == [1, 3, 5]
        assert ids(found["written"]) == [0, 2, 4]
        assert ids(self.run([order(1, 1)], gate, sink)["written"]) == [1]

    def test_a_dead_letter_sink_gets_what_was_rejected(self) -> None:
        """Record, reason and detail are handed over, and the job ends well."""
        letters = MemorySink("dead letters")
        found = self.run([order(1, 1), {"pos": 2}], replace(GATE, rejected=letters), TABLE)
        (letter,) = letters.effects
        assert (letter.record["record"], letter.record["reason"]) == ({"pos": 2}, "no_key")
        assert effects(TABLE) == ids(found["written"]) == [1]

    def test_rejected_records_stop_the_job_once_the_rest_is_written(self) -> None:
        """Where nobody takes them they cannot be overlooked, and they do not hold up the rest of their batch."""
        records = [order(1, 1), {"pos": 2}, order(3, 3)]
        with pytest.raises(Exception, match=r"no_key[\s\S]*rejected='output'"):
            self.run(records, replace(GATE, rejected="raise", shards=1), TABLE)
        assert effects(TABLE) == [1, 3]

    def test_records_of_every_kind_have_the_same_identity(self) -> None:
        """An order is the same one as a dict, a NamedTuple, a dataclass and JSON."""
        values = [order(number, number) for number in range(4)]
        kinds = [values[0], Order(**values[1]), OrderObject(**values[2]), json.dumps(values[3]).encode()]
        assert [each.replayed for each in self.run(kinds, GATE, TABLE)["written"]] == [False] * 4
        others = [Order(**values[0]), OrderObject(**values[1]), json.dumps(values[2]), values[3]]
        found = self.run(others, GATE, TABLE)
        assert [each.replayed for each in found["written"]] == [True] * 4
        assert [type(each.record) for each in found["written"]].count(Order) == 1
        assert len(TABLE.effects) == 4

    def test_what_may_have_been_written_is_parked(self) -> None:
        """A reply that was lost leaves the record to a person, under the key that the sink was sent."""
        sink = MemorySink(timeout=timedelta(milliseconds=1))
        faults = Faults.at({("sink", "write", 1): Fault.LOSE_REPLY})
        gate = replace(
            EXTERNAL, on_replay="park", parked="output", lease=timedelta(milliseconds=20), grace=timedelta(0)
        )
        found = self.run([order(1, 1)], gate, FaultySink(sink, faults))
        (parked,) = found["parked"]
        assert parked.record == order(1, 1)
        assert parked.idempotency_key == sink.effects[0].digest.hex()
        assert effects(sink) == [1]

    @pytest.mark.parametrize("kind", ["transactional", "drops by key", "external"])
    def test_observing_writes_everything_and_learns_what_a_live_gate_needs(self, kind: str) -> None:
        """Second sends are written as before; with `observe` off the same rows are replays and duplicates."""
        gate, sink = SETUPS[kind]
        observing = replace(gate, observe=True)
        first = self.run([order(1, 0), order(2, 1), order(1, 2), {"pos": 3}], observing, sink)
        second = self.run([order(2, 9), order(3, 10, "coffee")], observing, sink)
        assert ids(first["written"]) == [1, 1, 2]
        assert ids(second["written"]) == [2, 3]
        assert [each.reason for each in first["rejected"]] == ["no_key"]
        assert not [*first["duplicates"], *second["duplicates"], *second["rejected"]]
        assert effects(sink) == [1, 1, 2, 2, 3]
        live = self.run([order(1, 0), order(2, 20), order(3, 10, "coffee"), order(4, 21)], gate, sink)
        assert sorted((each.record["id"], each.replayed) for each in live["written"]) == [
            (1, True),
            (3, True),
            (4, False),
        ]
        assert ids(live["duplicates"]) == [2]
        assert effects(sink) == [1, 1, 2, 2, 3, 4]

    def test_an_observing_filter_lets_everything_pass_and_learns(self) -> None:
        """With `observe` off the claiming delivery passes again, and no other one."""
        observing = replace(GATE, observe=True)
        first = self.run_drop([order(1, 0), order(2, 1), order(1, 2)], observing)
        second = self.run_drop([order(1, 3)], observing)
        assert sorted(each["pos"] for each in first["passed"]) == [0, 1, 2]
        assert [each["pos"] for each in second["passed"]] == [3]
        live = self.run_drop([order(1, 0), order(1, 3), order(2, 5)], GATE)
        assert [each["pos"] for each in live["passed"]] == [0]
        assert sorted(each.record["pos"] for each in live["duplicates"]) == [3, 5]

    def test_a_filter_passes_one_delivery_of_a_key_however_often_it_comes(self) -> None:
        """Records pass as they are; a replayed one passes again, a second send never."""
        first = self.run_drop([order(1, 0), order(2, 1), order(1, 2), {"pos": 3}], GATE)
        second = self.run_drop([order(1, 2), order(1, 0), order(3, 4)], GATE)
        assert sorted(each["pos"] for each in first["passed"]) == [0, 1]
        assert sorted(each["pos"] for each in second["passed"]) == [0, 4]
        assert [each.record["pos"] for each in (*first["duplicates"], *second["duplicates"])] == [2, 2]
        assert [each.reason for each in first["rejected"]] == ["no_key"]
