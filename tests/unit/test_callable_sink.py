"""What a function as a sink may do, and what its errors mean."""

import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.clock import ManualClock
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
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Rejected, Unavailable
from oncesink.connectors.memory import MemoryLedger
from oncesink.transforms import Fields, Gate, OnceWriter, SourcePosition

CALLED: list[tuple[Any, str]] = []
CLOCK = ManualClock()


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    """Begin without calls."""
    CALLED.clear()
    CLOCK.now = 0.0


def send(record: Any, key: str) -> object:
    """Do what the record says; a number is how many seconds it takes."""
    CALLED.append((record, key))
    if isinstance(record, Exception):
        raise record
    if isinstance(record, float):
        CLOCK.sleep(record)
    return record


def all_written(writes: Sequence[Write]) -> None:
    """Take them all."""
    CALLED.extend((each.record, each.idempotency_key) for each in writes)


def one_too_few(writes: Sequence[Write]) -> Sequence[Answer]:
    """Forget the last one."""
    return [WRITTEN] * (len(writes) - 1)


def words(writes: Sequence[Write]) -> Sequence[Answer]:
    """Answer with what is no answer."""
    return ["ok"] * len(writes)  # type: ignore[list-item]


def second_is_known(writes: Sequence[Write]) -> Sequence[Answer]:
    """Have seen every second key before."""
    return [ALREADY if number % 2 else WRITTEN for number in range(len(writes))]


def found_all(writes: Sequence[Write]) -> Sequence[Answer | None]:
    """Tell that every second effect is there."""
    return [ALREADY if number % 2 else None for number in range(len(writes))]


def opened(sink: CallableSink) -> SinkSession:
    """Open it as a gate with a ledger does."""
    scope = Scope(name="test", use=Use.WRITE)
    return sink.open(scope, MemoryLedger("callable").open(scope))


def answers(sink: CallableSink, *records: Any, seconds: float = 10.0) -> Sequence[Answer]:
    """Write the records and return the answers."""
    writes = [Write(record, bytes([number] * 16), None) for number, record in enumerate(records)]
    return opened(sink).write(writes, timeout_seconds=seconds)


def outcomes(sink: CallableSink, *records: Any, seconds: float = 10.0) -> list[Outcome]:
    """Write the records and return what became of them."""
    return [each.outcome for each in answers(sink, *records, seconds=seconds)]


def one_by_one() -> CallableSink:
    """Give a sink of one record at a time, with a clock that `send` moves."""
    return replace(CallableSink.each(send, name="test"), clock=CLOCK)


def test_each_record_is_called_with_its_idempotency_key() -> None:
    """The other side gets 32 hexadecimal digits that stay the same for one effect."""
    answers(one_by_one(), "a", "b")
    assert CALLED == [("a", "00" * 16), ("b", "01" * 16)]


def test_what_it_returns_is_the_result_and_means_written() -> None:
    """The gate's `results=` says what of that is stored; an `Answer` says itself what it means."""
    given = [b"receipt 7", None, "text", {"a": 1}, ALREADY]
    results = (b"receipt 7", None, "text", {"a": 1})
    assert answers(one_by_one(), *given) == [*(Answer(Outcome.WRITTEN, each) for each in results), ALREADY]


def test_a_refusal_concerns_its_record_only() -> None:
    """The others are written, and the reason comes through."""
    first, second, third = answers(one_by_one(), "a", Rejected("too_large", "5 MB"), "c")
    assert first.outcome is third.outcome is Outcome.WRITTEN
    assert (second.outcome, second.reason, second.detail) == (Outcome.REJECTED, "too_large", "5 MB")


@pytest.mark.parametrize("error", [OutcomeUnknown("no reply"), TimeoutError("no reply"), KeyError("x")])
def test_any_other_error_leaves_its_record_unknown_and_the_rest_goes_on(error: Exception) -> None:
    """Nobody can tell whether the call was applied."""
    assert outcomes(one_by_one(), "a", error, "c") == [Outcome.WRITTEN, Outcome.UNKNOWN, Outcome.WRITTEN]


def test_behind_an_unavailable_call_nothing_is_sent() -> None:
    """What was written stays written; the rest may be sent again and was not called."""
    found = outcomes(one_by_one(), "a", Unavailable("away"), "c", "d")
    assert found == [Outcome.WRITTEN, Outcome.UNAVAILABLE, Outcome.UNAVAILABLE, Outcome.UNAVAILABLE]
    assert len(CALLED) == 2


def test_an_unavailable_first_call_is_raised_with_the_time_it_asked_for() -> None:
    """A `Retry-After` of the other side reaches the back-off."""
    with pytest.raises(Unavailable) as caught:
        answers(one_by_one(), Unavailable("busy", retry_after_seconds=7.0), "b")
    assert caught.value.retry_after_seconds == 7.0


def test_no_call_starts_once_the_time_is_used_up() -> None:
    """A call that could outlive the lease is not begun: its record may be sent again."""
    found = outcomes(one_by_one(), 4.0, 4.0, 4.0, 4.0, seconds=10.0)
    assert found == [Outcome.WRITTEN, Outcome.WRITTEN, Outcome.UNAVAILABLE, Outcome.UNAVAILABLE]
    assert len(CALLED) == 2


def test_the_first_record_is_called_however_little_time_there_is() -> None:
    """A sink slower than its time-out still makes progress, one record a call."""
    assert outcomes(one_by_one(), 4.0, 4.0, seconds=1.0) == [Outcome.WRITTEN, Outcome.UNAVAILABLE]


def test_a_batch_function_without_answers_has_written_all() -> None:
    """`None` is the short form."""
    assert answers(CallableSink(all_written, name="test"), "a", "b") == [WRITTEN, WRITTEN]
    assert [record for record, _ in CALLED] == ["a", "b"]


def test_a_batch_function_answers_a_record_at_a_time() -> None:
    """The answers come through, in order."""
    assert answers(CallableSink(second_is_known, name="test"), "a", "b", "c") == [WRITTEN, ALREADY, WRITTEN]


@pytest.mark.parametrize("function", [one_too_few, words])
def test_answers_that_cannot_be_matched_leave_all_unknown(function: Callable[..., Any]) -> None:
    """Too few answers, or others than `Answer`s, tell nothing about any record."""
    with pytest.raises(OutcomeUnknown, match="callable test"):
        answers(CallableSink(function, name="test"), "a", "b")


def test_a_probe_is_asked_where_there_is_one() -> None:
    """The gate may choose `on_replay="probe"` only then."""
    sink = CallableSink(all_written, name="test", probe=found_all)
    writes = [Write(record, bytes([record] * 16), None) for record in (0, 1)]
    assert sink.can_probe
    assert opened(sink).probe(writes, timeout_seconds=1.0) == [None, ALREADY]
    assert not CallableSink(all_written, name="test").can_probe
    with pytest.raises(Misconfigured, match="probe="):
        opened(CallableSink(all_written, name="test")).probe(writes, timeout_seconds=1.0)


def test_what_drops_by_key_is_another_kind() -> None:
    """The kind decides what a replay may do."""
    assert CallableSink.each(send, name="test").kind is SinkKind.EXTERNAL
    dropping = CallableSink.each(send, name="test", drops_by_key=True, remembers=timedelta(days=1))
    assert (dropping.kind, dropping.remembers) == (SinkKind.DROPS_BY_KEY, timedelta(days=1))
    assert isinstance(dropping, Sink)


@pytest.mark.parametrize("function", [lambda record, key: None, threading.Lock().acquire])
def test_a_function_that_workers_could_not_load_is_refused_at_once(function: Callable[..., Any]) -> None:
    """Not by a worker, hours later: the message names the sink and says where to define the function."""
    with pytest.raises(Misconfigured, match=r"callable test.*top of a module"):
        CallableSink.each(function, name="test")
    with pytest.raises(Misconfigured, match=r"probe=.*top of a module"):
        CallableSink(all_written, name="test", probe=function)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": ""}, "name"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"remembers": timedelta(days=1)}, "drops_by_key"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], says: str) -> None:
    """Each message names the setting."""
    with pytest.raises(Misconfigured, match=says):
        CallableSink(all_written, **{"name": "test", **settings})


def test_it_survives_pickling() -> None:
    """Workers get the recipe pickled."""
    for sink in (CallableSink(all_written, name="a", probe=found_all), CallableSink.each(send, name="b")):
        assert pickle.loads(pickle.dumps(sink)) == sink


def gate(ledger: str) -> Gate:
    """Give a gate for records with an id."""
    return Gate(
        scope="mails",
        key=Fields("id"),
        occurrence=SourcePosition("here", "offset"),
        ledger=MemoryLedger(ledger),
        on_replay="write",
    )


def test_through_a_gate_a_record_is_sent_once() -> None:
    """Resent and replayed records do not reach the function again."""
    records = [{"id": 1, "offset": 1}, {"id": 1, "offset": 2}, {"id": 1, "offset": 1}]
    with OnceWriter(gate("once"), CallableSink.each(send, name="mails")) as writer:
        results = writer.write(records[:1])
        again = writer.write(records)
    assert len(CALLED) == 1
    assert (len(results.written), len(again.written), len(again.duplicates)) == (1, 2, 1)
    assert all(each.replayed for each in again.written)


def test_another_name_under_the_same_scope_is_refused() -> None:
    """Two sinks under one scope would lose each other's records."""
    OnceWriter(gate("names"), CallableSink.each(send, name="mails")).close()
    with pytest.raises(Misconfigured, match="callable letters"):
        OnceWriter(gate("names"), CallableSink.each(send, name="letters"))
