"""What sinks outside the ledger's transaction may do to the gate: be away, be slow, refuse, answer nonsense."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors import CallableSink, MemoryLedger
from oncesink.connectors.contract import (
    ALREADY,
    WRITTEN,
    Answer,
    LedgerSession,
    Outcome,
    Scope,
    SinkKind,
    SinkSession,
    Write,
)
from oncesink.connectors.errors import InDoubt, OutcomeUnknown, Rejected, Unavailable
from oncesink.connectors.faults import Fault
from oncesink.transforms import Counts, Duplicate, Fields, Gate, OnceWriter, Parked, Refused, Written

from tests.unit.scene import ATTEMPTS, GRACE_SECONDS, LEASE_SECONDS, TIMEOUT_SECONDS, Kind, Scene, keys, record

WAIT_SECONDS = LEASE_SECONDS + GRACE_SECONDS
OUTSIDE: tuple[Kind, ...] = ("drops_by_key", "external")
each_outside_kind = pytest.mark.parametrize("kind", OUTSIDE)

Behaviour = Callable[[Sequence[Write], float], Any]


@dataclass
class ScriptedSink:
    """A sink that does, call by call, what a test says, and then writes. Recipe and session at once."""

    behaviours: list[Behaviour] = field(default_factory=list)
    kind: SinkKind = SinkKind.EXTERNAL
    atomic: bool = False
    tells_occurrence: bool = False
    remembers: timedelta | None = None
    can_probe: bool = True
    timeout: timedelta = timedelta(seconds=TIMEOUT_SECONDS)
    target: str = "scripted"
    store_id: bytes | None = None
    calls: list[list[str]] = field(default_factory=list)
    rooms: list[float] = field(default_factory=list)
    there: dict[bytes, Write] = field(default_factory=dict)

    def open(self, scope: Scope, ledger: LedgerSession | None) -> SinkSession:
        return self

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        self.calls.append([each.record["id"] for each in writes])
        self.rooms.append(timeout_seconds)
        behaviour = self.behaviours.pop(0) if self.behaviours else self.apply
        answers: Sequence[Answer] = behaviour(writes, timeout_seconds)
        return answers

    def apply(self, writes: Sequence[Write], timeout_seconds: float = 0.0) -> list[Answer]:
        """Write them; where the kind is one that drops by key, what is there stays."""
        answers = []
        for each in writes:
            known = self.there.setdefault(each.digest, each)
            drops = self.kind is SinkKind.DROPS_BY_KEY and known is not each
            answers.append(ALREADY._replace(occurrence=known.occurrence) if drops else WRITTEN)
        return answers

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        return [ALREADY if each.digest in self.there else None for each in writes]

    def close(self) -> None:
        """Nothing is held."""


def raises(error: BaseException) -> Behaviour:
    def behave(writes: Sequence[Write], timeout_seconds: float) -> Any:
        raise error

    return behave


def answers(*given: Answer) -> Behaviour:
    return lambda writes, timeout_seconds: list(given)


def scripted(
    *behaviours: Behaviour, settings: dict[str, Any] | None = None, **options: Any
) -> tuple[Scene, ScriptedSink]:
    sink = ScriptedSink(list(behaviours), **options)
    kind: Kind = "drops_by_key" if sink.kind is SinkKind.DROPS_BY_KEY else "external"
    return Scene(kind, settings or {}, make_sink=lambda name: sink), sink


UNAVAILABLE, UNKNOWN = Answer(Outcome.UNAVAILABLE, detail="busy"), Answer(Outcome.UNKNOWN, detail="lost")
REFUSED = Answer(Outcome.REJECTED, detail="no such customer")


class TestUnavailable:
    """Nothing was applied: bounded retries, then the claims are given back and the caller is told."""

    @each_outside_kind
    def test_it_is_tried_again_within_bounds(self, kind: Kind) -> None:
        """And not one time more."""
        scene = Scene(kind).on("sink", "write", *[Fault.REFUSE] * (ATTEMPTS - 1))
        assert scene.write(record("A")).written == [Written(record("A"))]
        scene = Scene(kind).on("sink", "write", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable):
            scene.write(record("A"))
        assert scene.calls("sink") == ["write"] * ATTEMPTS

    @each_outside_kind
    def test_the_claims_are_released_before_it_is_raised(self, kind: Kind) -> None:
        """Nobody has to wait for a lease: the repeat, and any other occurrence, goes on at once."""
        scene = Scene(kind).on("sink", "write", *[Fault.REFUSE] * ATTEMPTS)
        with pytest.raises(Unavailable):
            scene.write(record("A"), record("B", 1))
        assert not scene.store.rows
        assert scene.counts["released"] == 2
        assert keys(scene.write(record("A", 5)).written) == ["A"]
        assert scene.clock.now == 0.0

    def test_only_what_was_not_applied_is_sent_again(self) -> None:
        """Answers are judged one by one."""
        scene, sink = scripted(answers(WRITTEN, UNAVAILABLE, REFUSED))
        results = scene.write(record("A"), record("B", 1), record("C", 2))
        assert sink.calls == [["A", "B", "C"], ["B"]]
        assert (keys(results.written), keys(results.rejected)) == (["A", "B"], ["C"])

    def test_what_is_certain_is_finished_before_the_rest_is_raised(self) -> None:
        """The error carries it."""
        scene, _ = scripted(answers(WRITTEN, UNAVAILABLE, REFUSED), *[answers(UNAVAILABLE)] * (ATTEMPTS - 1))
        with pytest.raises(Unavailable, match="busy") as caught:
            scene.write(record("A"), record("B", 1), record("C", 2))
        assert keys(caught.value.results.written) == ["A"]
        assert keys(caught.value.results.rejected) == ["C"]
        assert (scene.open_rows, len(scene.store.rows)) == (0, 1)


class TestUnknown:
    """Perhaps applied: never sent again blindly, where that could do it twice."""

    @pytest.mark.parametrize(
        "behaviour",
        [
            raises(OutcomeUnknown("no answer")),
            raises(RuntimeError("a bug")),
            raises(TimeoutError()),
            raises(Rejected("refused", "one of them, or so")),
            answers(WRITTEN),
            answers(),
            answers(WRITTEN, WRITTEN, WRITTEN),
            answers(UNKNOWN, UNKNOWN),
        ],
        ids=["unknown", "bug", "time-out", "refused as a whole", "too few", "none", "too many", "unknown answers"],
    )
    @pytest.mark.parametrize("applied", [True, False])
    def test_it_is_in_doubt_until_the_probe_tells(self, behaviour: Behaviour, applied: bool) -> None:
        """Whatever a sink raises, and an answer that belongs to nobody, counts as a lost reply."""
        scene, sink = scripted()

        def first(writes: Sequence[Write], timeout_seconds: float) -> Any:
            if applied:
                sink.apply(writes)
            return behaviour(writes, timeout_seconds)

        sink.behaviours.append(first)
        results = scene.write(record("A"), record("B", 1))
        assert [out.replayed for out in results.written] == [applied] * 2
        assert sink.calls == [["A", "B"]] * (1 if applied else 2)
        assert scene.clock.now > WAIT_SECONDS

    def test_an_error_of_the_sinks_own_code_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        """With its traceback: it is a bug that nobody else would see."""
        scene, _ = scripted(raises(ZeroDivisionError("the sink's bug")))
        with caplog.at_level(logging.ERROR, logger="oncesink"):
            scene.write(record("A"))
        assert "ZeroDivisionError" in caplog.text
        assert "the sink's bug" in caplog.text

    def test_it_ends_as_the_cause_of_what_is_raised(self) -> None:
        """If it stays so."""
        bug = ZeroDivisionError("the sink's bug")
        scene, _ = scripted(raises(bug), raises(bug), settings={"on_replay": "write"})
        with pytest.raises(InDoubt) as caught:
            scene.write(record("A"))
        assert caught.value.__cause__ is bug

    def test_no_answer_at_all_settles_nothing(self) -> None:
        """A sink that forgot to return: nothing is reported, nothing is lost, the replay finds out."""
        scene, sink = scripted(lambda writes, timeout_seconds: sink.apply(writes) and None)
        with pytest.raises(TypeError) as caught:
            scene.write(record("A"))
        assert len(getattr(caught.value, "results", None) or ()) == 0
        assert scene.write(record("A")).written == [Written(record("A"), replayed=True)]
        assert sink.calls == [["A"]]


class TestDeadline:
    """The holder counts its lease from before the claim was sent: no call may still run when it has ended."""

    @each_outside_kind
    def test_no_call_starts_that_could_run_past_the_lease(self, kind: Kind) -> None:
        """A claim that took too long is given back unsent, and asked again under a new lease."""
        scene = Scene(kind).on("ledger", "claim", lambda: scene.clock.sleep(LEASE_SECONDS - TIMEOUT_SECONDS + 0.1))
        started: list[float] = []
        scene.on("sink", "write", lambda: started.append(scene.clock.now))
        assert scene.write(record("A")).written == [Written(record("A"))]
        assert scene.counts["released"] == 1
        assert scene.calls("ledger") == ["claim", "release", "claim", "finish"]
        assert len(started) == 1

    @each_outside_kind
    def test_a_call_that_just_fits_is_made(self, kind: Kind) -> None:
        """To the second."""
        scene = Scene(kind).on("ledger", "claim", lambda: scene.clock.sleep(LEASE_SECONDS - TIMEOUT_SECONDS))
        scene.write(record("A"))
        assert scene.calls("ledger") == ["claim", "finish"]

    def test_no_second_try_starts_that_could_run_past_it_either(self) -> None:
        """What was surely not applied by then is released, and raised as what it met."""
        scene, sink = scripted()
        scene.attempts = 9

        def slow(writes: Sequence[Write], timeout_seconds: float) -> Any:
            scene.clock.sleep(8.0)
            raise Unavailable("overloaded")

        sink.behaviours += [slow] * scene.attempts
        with pytest.raises(Unavailable, match="overloaded"):
            scene.write(record("A"))
        assert len(sink.calls) == 3, "24 s are gone, and 10 s more would end after the lease"
        assert not scene.store.rows

    def test_the_sink_is_told_how_long_it_may_take(self) -> None:
        """Never longer than its own time-out."""
        scene, sink = scripted(settings={"lease": timedelta(seconds=12)})
        scene.on("ledger", "claim", lambda: scene.clock.sleep(1.5))
        scene.write(record("A"))
        assert sink.rooms == [TIMEOUT_SECONDS]

    def test_a_record_in_doubt_that_finds_no_time_left_is_not_released(self) -> None:
        """An earlier attempt may have written it: it stays claimed, and is asked again after the new lease."""
        scene, sink = scripted(settings={"on_replay": "write"})
        scene.on("ledger", "claim", Fault.CRASH_AFTER).dies(record("A"))
        scene.clock.sleep(WAIT_SECONDS + 1)
        scene.on("ledger", "take", lambda: scene.clock.sleep(LEASE_SECONDS - TIMEOUT_SECONDS + 1))
        scene.on("ledger", "release", lambda: pytest.fail("released"))
        assert scene.write(record("A")).written == [Written(record("A"))]
        assert sink.calls == [["A"]]

    def test_halves_are_sent_in_time_as_well(self) -> None:
        """A refused batch whose halving takes too long leaves the rest for another lease."""
        scene, sink = scripted(atomic=True)

        def slow(writes: Sequence[Write], timeout_seconds: float) -> Any:
            scene.clock.sleep(8.0)
            if any(each.record.get("bad") for each in writes):
                raise Rejected("refused", "bad")
            return sink.apply(writes)

        sink.behaviours += [slow] * 50
        batch = [record(f"K{number}", number, bad=number == 7) for number in range(8)]
        for _ in range(9):
            with contextlib.suppress(Unavailable):
                if scene.write(*batch):
                    break
        assert sorted(each.record["id"] for each in sink.there.values()) == [f"K{number}" for number in range(7)]
        assert scene.open_rows == 0


class TestRefused:
    """A claim is released if and only if no call since its insertion can have been applied."""

    @each_outside_kind
    def test_a_refused_record_leaves_no_row(self, kind: Kind) -> None:
        """It may be corrected and sent again."""
        scene = Scene(kind)
        assert keys(scene.write(record("A", bad=True), record("B", 1)).rejected) == ["A"]
        assert len(scene.store.rows) == 1
        assert scene.write(record("A", 2)).written == [Written(record("A", 2))]

    def test_after_a_call_of_unknown_outcome_it_is_parked(self) -> None:
        """The first call may have written it: nobody but a person can tell."""
        scene, _ = scripted(answers(UNKNOWN), answers(REFUSED), settings={"on_replay": "write"})
        (parked,) = scene.write(record("A")).parked
        assert isinstance(parked, Parked)
        assert "no such customer" in parked.detail
        assert scene.open_rows == 1

    def test_after_a_take_over_it_is_parked(self) -> None:
        """An earlier attempt may have written it."""
        scene, _ = scripted(answers(REFUSED), settings={"on_replay": "write"})
        scene.on("ledger", "claim", Fault.CRASH_AFTER).dies(record("A"))
        assert keys(scene.write(record("A")).parked) == ["A"]

    def test_a_sink_that_drops_by_key_would_have_said_already(self) -> None:
        """So a refusal proves that nothing is there: rejected, and the row goes."""
        scene, _ = scripted(answers(UNKNOWN), answers(REFUSED), kind=SinkKind.DROPS_BY_KEY)
        assert scene.write(record("A")).rejected == [Refused(record("A"), "refused", "no such customer")]
        assert not scene.store.rows

    def test_a_lost_release_is_repeated(self) -> None:
        """It deletes only what is its own."""
        scene = Scene("external").on("ledger", "release", Fault.LOSE_REPLY)
        assert keys(scene.write(record("A", bad=True)).rejected) == ["A"]
        assert not scene.store.rows

    @pytest.mark.parametrize("options", [{"atomic": True}, {"kind": SinkKind.DROPS_BY_KEY}], ids=["atomic", "drops"])
    @pytest.mark.parametrize("place", [0, 5, 63])
    def test_a_batch_is_split_around_it_where_that_is_harmless(self, options: dict[str, Any], place: int) -> None:
        """At a cost of two calls a halving."""
        scene, sink = scripted(**options)

        def refuse(writes: Sequence[Write], timeout_seconds: float) -> Any:
            if any(each.record.get("bad") for each in writes):
                raise Rejected("refused", "bad")
            return sink.apply(writes)

        sink.behaviours += [refuse] * 100
        results = scene.write(*[record(f"K{number}", number, bad=number == place) for number in range(64)])
        assert keys(results.rejected) == [f"K{place}"]
        assert len(results.written) == len(sink.there) == 63
        assert len(sink.calls) <= 1 + 2 * math.log2(64)
        assert scene.open_rows == 0

    def test_a_batch_of_any_other_sink_is_never_split(self) -> None:
        """It may have been applied in part, so that a half could be written twice."""
        scene, sink = scripted(raises(Rejected("refused", "one of them")))
        scene.write(record("A"), record("B", 1))
        assert sink.calls == [["A", "B"], ["A", "B"]]
        assert scene.clock.now > WAIT_SECONDS


class TestWithoutLedger:
    """A sink that drops a second write by its own unique key needs no ledger."""

    def direct(self, *, tells: bool, **settings: Any) -> tuple[Scene, ScriptedSink]:
        options = {"kind": SinkKind.DROPS_BY_KEY, "tells_occurrence": tells, "store_id": b"s" * 16}
        return scripted(settings={"ledger": None, **settings}, **options)

    def test_what_is_there_goes_to_written_marked_replayed(self) -> None:
        """A replay and a second send look alike: both are there afterwards."""
        scene, sink = self.direct(tells=False)
        assert scene.write(record("A", 0), record("A", 0), record("A", 1)).written == [
            Written(record("A", 0)), Written(record("A", 0), True), Written(record("A", 1), True),
        ]  # fmt: skip
        assert scene.write(record("A", 0), record("B", 9)).written == [
            Written(record("A", 0), True), Written(record("B", 9)),
        ]  # fmt: skip
        assert len(sink.there) == 2

    def test_with_the_occurrence_kept_they_are_told_apart(self) -> None:
        """The one that wrote is the replay, also when it was not the one that was asked."""
        scene, _ = self.direct(tells=True)
        scene.write(record("A", 5))
        results = scene.write(record("A", 4), record("A", 5), record("B", 6))
        assert results.written == [Written(record("A", 5), True), Written(record("B", 6))]
        assert results.duplicates == [Duplicate(record("A", 4))]

    @pytest.mark.parametrize("tells", [True, False])
    def test_the_cache_answers_as_the_sink_would(self, tells: bool) -> None:
        """Without asking it."""
        scene, sink = self.direct(tells=tells)
        scene.settings["cache"] = scene.cache
        scene.write(record("A", 0))
        again = [scene.write(record("A", at)) for at in (0, 1)]
        assert [len(each.written) for each in again] == ([1, 0] if tells else [1, 1])
        assert sink.calls == [["A"]]

    def test_a_lost_reply_is_repeated_and_then_raised(self) -> None:
        """The caller repeats; the key decides."""
        scene, sink = self.direct(tells=True)
        sink.behaviours += [lambda writes, timeout_seconds: sink.apply(writes) and [UNKNOWN]] * ATTEMPTS
        with pytest.raises(OutcomeUnknown):
            scene.write(record("A"))
        assert scene.write(record("A")).written == [Written(record("A"), True)]
        assert scene.write(record("A", 1)).duplicates

    def test_a_refused_first_lets_the_next_in(self) -> None:
        """As everywhere."""
        scene, sink = self.direct(tells=True)
        sink.behaviours.append(answers(REFUSED))
        results = scene.write(record("A", 0), record("A", 1))
        assert (keys(results.rejected), results.written) == (["A"], [Written(record("A", 1))])


SLOWLY: list[str] = []


def slowly(order: Any, _: str) -> None:
    """Write into a list."""
    SLOWLY.append(order["id"])


def test_a_sink_that_gets_one_record_through_a_call_is_slow_and_not_in_trouble() -> None:
    """Each call has time for a single record: all are written, and no try counts as failed."""
    SLOWLY.clear()
    second = timedelta(seconds=1)
    sink = CallableSink.each(slowly, name="slow", timeout=second, record_timeout=second)
    counts = Counts()
    gate = Gate(
        scope="slow",
        key=Fields("id"),
        occurrence=None,
        ledger=MemoryLedger("slow", retention=timedelta(days=1)),
        on_replay="park",
        parked="output",
    )
    with OnceWriter(gate, sink, metrics=counts) as writer:
        results = writer.write({"id": f"A-{number}"} for number in range(50))
    assert (len(results.written), len(SLOWLY), counts["retries"]) == (50, 50, 0)
