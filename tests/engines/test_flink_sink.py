"""`RichSinkFunction` behind a gate: its answers, its errors, its time, its life cycle."""

import gc
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.contract import ALREADY, Answer, Outcome, SinkKind, Write
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Rejected, Unavailable
from oncesink.connectors.memory import MemoryLedger, forget_all
from oncesink.pipelines.jobs import load_job
from oncesink.transforms import Batch, Fields, Gate, SourcePosition
from oncesink.transforms.flink import OnceSink, letter
from oncesink.transforms.flink_function import GateFunction
from oncesink.transforms.flink_outputs import Outputs
from oncesink.transforms.flink_sink import InvokedSink, RichSinkFunction
from oncesink.transforms.gate import write_scope
from oncesink.transforms.results import Refused

from tests.engines.flink_harness import KeyedHarness

pytestmark = pytest.mark.flink

LEDGER = MemoryLedger("flink sink")
GATE = Gate(
    scope="orders",
    key=Fields("id"),
    occurrence=SourcePosition("file", "pos"),
    ledger=LEDGER,
    on_replay="write",
    batch=Batch(rows=2),
)
SEEN: list[Any] = []


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    SEEN.clear()
    forget_all()
    yield
    forget_all()


class Scripted(RichSinkFunction):
    """A sink that does with a record what the record says."""

    timeout = timedelta(seconds=1)

    def open(self, context: Any) -> None:
        SEEN.append(("open", context))

    def invoke(self, value: Any, write: Write) -> Answer | bytes | None:
        SEEN.append(write.idempotency_key)
        if isinstance(value, Exception):
            raise value
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        SEEN.append("close")


def session(function: RichSinkFunction) -> Any:
    """Open the function as the gate does."""
    sink = InvokedSink(function)
    return sink.open(write_scope(GATE, sink), LEDGER.open(write_scope(GATE, sink)))


def answers(*values: Any, timeout_seconds: float = 10.0) -> list[Answer]:
    """Return what the gate is answered for records."""
    writes = [Write(value, bytes([number] * 16), None) for number, value in enumerate(values)]
    return list(session(Scripted()).write(writes, timeout_seconds=timeout_seconds))


def test_what_invoke_returns_is_the_answer() -> None:
    """Nothing: written; bytes: the result that is stored; an answer: as it is."""
    assert answers(None, b"receipt", ALREADY) == [
        Answer(Outcome.WRITTEN),
        Answer(Outcome.WRITTEN, result=b"receipt"),
        ALREADY,
    ]


def test_what_invoke_raises_says_what_may_have_happened() -> None:
    """Each record is judged by itself: refused, not applied, perhaps applied; anything unknown counts as perhaps."""
    found = answers(Rejected("refused", "no"), Unavailable("later"), OutcomeUnknown("lost"), KeyError("surprise"))
    assert [each.outcome for each in found] == [
        Outcome.REJECTED,
        Outcome.UNAVAILABLE,
        Outcome.UNKNOWN,
        Outcome.UNKNOWN,
    ]
    assert found[0].detail == "no"
    assert found[3].detail == "KeyError: 'surprise'"


def test_no_call_starts_that_might_end_too_late() -> None:
    """Where less than one call's time is left nothing is sent: the record was not applied."""
    assert [each.outcome for each in answers(None, None, timeout_seconds=0.5)] == [Outcome.UNAVAILABLE] * 2
    assert SEEN == [("open", None)]


def test_behind_a_gate_it_has_the_context_and_the_key_of_each_record() -> None:
    """`open` sees Flink's context, `invoke` 32 hexadecimal digits; `close` comes with the function's."""
    harness = KeyedHarness(GateFunction(GATE, InvokedSink(Scripted()), Outputs(filters=False)))
    assert [("open", harness)] == SEEN
    harness.function.close()
    harness.function.close()
    assert SEEN[1:] == ["close"]


def test_a_function_that_flink_forgets_closes_its_connections() -> None:
    """Flink does not call `close()` after every failure."""
    harness = KeyedHarness(GateFunction(GATE, InvokedSink(Scripted()), Outputs(filters=False)))
    SEEN.clear()
    del harness
    gc.collect()
    assert SEEN == ["close"]


def test_an_open_that_fails_is_closed() -> None:
    """What it had taken is let go of."""

    class Failing(Scripted):
        def open(self, context: Any) -> None:
            raise Unavailable("not there")

    with pytest.raises(Unavailable):
        session(Failing())
    assert SEEN == ["close"]


def test_its_class_says_what_a_second_write_does() -> None:
    """EXTERNAL unless it says otherwise; the gate judges it by that."""

    class Recognising(Scripted):
        kind = SinkKind.DROPS_BY_KEY
        remembers = timedelta(days=1)

    known = InvokedSink(Recognising())
    assert (known.kind, known.remembers, known.timeout) == (
        SinkKind.DROPS_BY_KEY,
        timedelta(days=1),
        timedelta(seconds=2),
    )
    assert InvokedSink(Scripted()).kind is SinkKind.EXTERNAL
    assert known.target.endswith("Recognising")


def of_a_job() -> tuple[Gate, RichSinkFunction]:
    """Return what stands in a job's module."""
    return replace(GATE, redrive="json"), Scripted()


def test_commands_take_it_as_the_job_does() -> None:
    """`oncesink reconcile` and `oncesink check` find gate and sink where the job has them."""
    job = load_job(f"{__name__}:of_a_job")
    assert isinstance(job.sink, InvokedSink)
    assert job.scope == write_scope(job.gate, InvokedSink(Scripted()))


def test_its_name_in_the_scope_does_not_depend_on_how_the_job_is_started() -> None:
    """A class of the started script has another module than the same one where it is imported."""
    assert Scripted().target == "Scripted"


def test_it_needs_a_ledger() -> None:
    """Nobody else would remember what it wrote."""
    sink = InvokedSink(Scripted())
    with pytest.raises(Misconfigured, match="give the gate a ledger"):
        sink.open(write_scope(GATE, sink), None)


def test_sinks_travel_to_workers_without_anything_of_java() -> None:
    """Both can be made, and pickled, where no Java runs; settings that replace the gate's are in the copy."""
    sink = OnceSink(replace(GATE, rejected="raise"), Scripted(), rejected="output", told=True)
    assert pickle.loads(pickle.dumps(sink))._gate.rejected == "output"
    assert pickle.loads(pickle.dumps(Scripted())).target == Scripted().target


@pytest.mark.parametrize(
    "record",
    [{"id": {date(2026, 1, 1): 1}}, b"\xff", float("nan"), {("a", 1): {2}}, 10**5000],
    ids=["a date as a name", "bytes", "no number", "a pair as a name", "too many digits"],
)
def test_a_letter_is_made_of_any_record(record: Any) -> None:
    """What the gate refuses is just what JSON has no form for."""
    line = letter(Refused(record, "wrong_type", "why"))
    assert json.loads(line)["reason"] == "wrong_type"
    assert "\n" not in line
