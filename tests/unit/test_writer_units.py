"""A transactional sink: ledger rows and business rows are one unit, run again as a whole or not at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.contract import Answer, LedgerSession, Outcome, Scope, SinkKind, SinkSession, Write
from oncesink.connectors.errors import OutcomeUnknown, RecordsRejected, Rejected, Unavailable
from oncesink.connectors.faults import Fault
from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.memory_sinks import MemoryTable
from oncesink.transforms import Duplicate, Results, Written

from tests.unit.scene import ATTEMPTS, Scene, keys, record, refuses_bad


@dataclass(frozen=True)
class NamelessTable:
    """A table that refuses a whole insert without saying which row it was, as SQL does."""

    table: MemoryTable

    kind = SinkKind.TRANSACTIONAL
    atomic = True
    can_probe = False
    remembers = None
    tells_occurrence = False
    timeout = timedelta(seconds=10)
    target = "nameless table"

    @property
    def ledger(self) -> MemoryLedger:
        return self.table.ledger

    def open(self, scope: Scope, ledger: LedgerSession | None) -> SinkSession:
        return _NamelessSession(self.table.open(scope, ledger))


@dataclass
class _NamelessSession:
    session: Any
    store_id = None

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        if any(refuses_bad(each.record) for each in writes):
            raise Rejected("refused", "a check constraint")
        answers: Sequence[Answer] = self.session.write(writes, timeout_seconds=timeout_seconds)
        return answers

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


def nameless(**settings: Any) -> Scene:
    return Scene("transactional", settings, make_sink=lambda name: NamelessTable(MemoryTable(MemoryLedger(name), name)))


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.HANG_APPLIED])
def test_a_lost_reply_to_the_commit_is_resolved(fault: Fault) -> None:
    """The unit runs again, finds its own rows, and reports them as written by this call, once."""
    scene = Scene("transactional").on("ledger", "commit", fault)
    results = scene.write(record("A"), record("A"), record("A", 1), record("B", 2))
    assert results.written == [Written(record("A")), Written(record("A"), True), Written(record("B", 2))]
    assert results.duplicates == [Duplicate(record("A", 1))]
    assert scene.written_keys == ["A", "B"]
    assert scene.counts["written"] == 2


def test_a_commit_that_took_effect_twice_over_is_still_one() -> None:
    """Several lost replies in a row."""
    scene = Scene("transactional").on("ledger", "commit", *[Fault.LOSE_REPLY] * (ATTEMPTS - 1))
    assert scene.write(record("A")).written == [Written(record("A"))]
    assert scene.written_keys == ["A"]


def test_a_commit_whose_reply_stays_lost_is_raised_and_the_repeat_is_a_replay() -> None:
    """Nobody knows until somebody asks again; nothing is doubled."""
    scene = Scene("transactional", attempts=1).on("ledger", "commit", Fault.LOSE_REPLY)
    with pytest.raises(OutcomeUnknown) as caught:
        scene.write(record("A"))
    assert len(caught.value.results) == 0
    assert scene.write(record("A")).written == [Written(record("A"), replayed=True)]
    assert scene.written_keys == ["A"]


def test_a_lost_reply_does_not_claim_the_rows_of_another() -> None:
    """A second send that went in between is the writer, and this one its duplicate."""
    scene = Scene("transactional")
    other = scene.writer()
    scene.on("ledger", "commit", Fault.REFUSE).on("ledger", "claim", None, lambda: other.write([record("A", 9)]))
    results = scene.write(record("A", 0))
    assert results.duplicates == [Duplicate(record("A", 0))]
    assert [effect.record["offset"] for effect in scene.effects] == [9]


@pytest.mark.parametrize(
    ("part", "verb", "fault"),
    [
        ("ledger", "claim", Fault.REFUSE),
        ("ledger", "claim", Fault.LOSE_REPLY),
        ("sink", "write", Fault.REFUSE),
        ("sink", "write", Fault.LOSE_REPLY),
        ("sink", "write", Fault.HANG),
        ("ledger", "commit", Fault.REFUSE),
    ],
)
def test_any_error_rolls_the_unit_back_and_runs_it_again_from_the_insert(part: Any, verb: str, fault: Fault) -> None:
    """Never the write alone: a rolled-back claim guards nothing."""
    scene = Scene("transactional").on(part, verb, fault)
    assert scene.write(record("A"), record("B", 1)).written == [Written(record("A")), Written(record("B", 1))]
    assert scene.written_keys == ["A", "B"]
    assert scene.calls("ledger").count("claim") == 2


@pytest.mark.parametrize(("part", "verb"), [("ledger", "claim"), ("sink", "write"), ("ledger", "commit")])
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_crash_anywhere_leaves_all_or_nothing(part: Any, verb: str, fault: Fault) -> None:
    """And the replay completes it, without waiting for anybody."""
    scene = Scene("transactional").on(part, verb, fault)
    scene.dies(record("A"), record("B", 1))
    committed = (verb, fault) == ("commit", Fault.CRASH_AFTER)
    assert len(scene.effects) == len(scene.store.rows) == (2 if committed else 0)
    results = scene.write(record("A"), record("B", 1))
    assert [out.replayed for out in results.written] == [committed] * 2
    assert scene.written_keys == ["A", "B"]
    assert scene.clock.now == 0.0


def test_a_sink_that_stays_away_is_raised_and_nothing_is_held() -> None:
    """A bounded number of tries, then the caller; no row and no effect is left."""
    scene = Scene("transactional").on("sink", "write", *[Fault.REFUSE] * ATTEMPTS)
    with pytest.raises(Unavailable):
        scene.write(record("A"))
    assert scene.calls("sink") == ["write"] * ATTEMPTS
    assert not scene.store.rows
    assert not scene.effects
    assert not scene.store.locked


def test_an_error_of_the_sinks_own_code_rolls_back_and_comes_out() -> None:
    """It is a bug, not a trouble that passes: no second try."""

    def breaks(record: Any) -> str | None:
        raise ZeroDivisionError

    scene = Scene("transactional", sink_settings={"refuses": breaks})
    with pytest.raises(ZeroDivisionError):
        scene.write(record("A"))
    assert not scene.store.rows
    assert scene.calls("sink") == ["write"]


def test_records_that_the_sink_names_are_taken_out_at_once() -> None:
    """The unit is rolled back and runs without them; their ledger rows are never committed."""
    scene = Scene("transactional")
    batch = [record(f"K{number}", number, bad=number % 3 == 0) for number in range(12)]
    results = scene.write(*batch)
    assert keys(results.rejected) == ["K0", "K3", "K6", "K9"]
    assert scene.calls("sink") == ["write", "write"]
    assert len(scene.store.rows) == len(scene.effects) == 8


@pytest.mark.parametrize("place", [0, 1, 499, 999])
def test_around_a_record_that_nobody_names_the_unit_is_halved(place: int) -> None:
    """At a cost of two calls a halving, wherever it stands; every other record is written, each in one unit."""
    scene = nameless()
    results = scene.write(*[record(f"K{number}", number, bad=number == place) for number in range(1000)])
    assert keys(results.rejected) == [f"K{place}"]
    assert results.rejected[0].detail == "a check constraint"
    assert len(results.written) == len(scene.effects) == len(scene.store.rows) == 999
    assert len(scene.calls("sink")) <= 1 + 2 * math.ceil(math.log2(1000))


def test_several_refused_records_are_each_found() -> None:
    """And the good ones between them are not lost."""
    scene = nameless(rejected="raise")
    bad = {0, 1, 7, 40, 63}
    with pytest.raises(RecordsRejected) as caught:
        scene.write(*[record(f"K{number}", number, bad=number in bad) for number in range(64)])
    results: Results = caught.value.results
    assert {out.record["offset"] for out in results.rejected} == bad
    assert {effect.record["offset"] for effect in scene.effects} == set(range(64)) - bad


def test_trouble_while_halving_keeps_what_is_certain() -> None:
    """The half that was committed is told; the other one comes again."""
    scene = nameless()
    scene.on("sink", "write", None, None, *[Fault.REFUSE] * ATTEMPTS)
    batch = [record("A", 0), record("B", 1), record("C", 2), record("D", 3, bad=True)]
    with pytest.raises(Unavailable) as caught:
        scene.write(*batch)
    assert keys(caught.value.results.written) == ["A", "B"]
    results = scene.write(*batch)
    assert [(out.record["id"], out.replayed) for out in results.written] == [("A", True), ("B", True), ("C", False)]
    assert keys(results.rejected) == ["D"]


def test_a_row_that_another_holds_is_waited_for_by_trying_again() -> None:
    """Two open transactions on one key: the second one meets a lock, and the first one's row once it is committed."""
    scene = Scene("transactional")
    other = scene.ledger.inner.open(_scope_of(scene))
    with other.transaction():
        other.claim([_claim_of(scene, record("A", 9))], owner=bytes(16), lease_seconds=None)
        with pytest.raises(Unavailable):
            scene.write(record("A", 0))
    assert scene.write(record("A", 0)).duplicates == [Duplicate(record("A", 0))]


def _scope_of(scene: Scene) -> Scope:
    return scene.writer()._session.scope


def _claim_of(scene: Scene, one: Any) -> Any:
    item: Any = scene.writer()._session.prepare(one)
    return item.claim


@dataclass
class _Unsure:
    answer: Answer
    store_id = None

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        return [self.answer] * len(writes)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class UnsureTable(NamelessTable):
    """A table whose answers say that it does not know."""

    answer: Answer

    def open(self, scope: Scope, ledger: LedgerSession | None) -> SinkSession:
        return _Unsure(self.answer)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [(Outcome.UNAVAILABLE, Unavailable), (Outcome.UNKNOWN, OutcomeUnknown), (Outcome.ALREADY, OutcomeUnknown)],
)
def test_an_answer_that_is_not_written_rolls_back(outcome: Outcome, error: type[Exception]) -> None:
    """A unit is committed only where all of it is written."""

    def make(name: str) -> UnsureTable:
        return UnsureTable(MemoryTable(MemoryLedger(name), name), Answer(outcome))

    scene = Scene("transactional", make_sink=make)
    with pytest.raises(error):
        scene.write(record("A"))
    assert not scene.store.rows
