"""The gate function by itself: when it flushes, what it keeps, what becomes of records in doubt. Tests set the time."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.clock import ManualClock
from oncesink.connectors.contract import Claim, Write
from oncesink.connectors.errors import InDoubt, RecordsRejected, Unavailable
from oncesink.connectors.faults import Fault, Faults
from oncesink.connectors.faulty import FaultySink
from oncesink.connectors.memory import MemoryLedger, forget_all, memory_store
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.transforms import (
    Backoff,
    Batch,
    Bloom,
    ByStamp,
    Duplicate,
    Fields,
    Gate,
    Refused,
    SourcePosition,
    Written,
    session,
)
from oncesink.transforms.flink_function import GateFunction, ShardFunction
from oncesink.transforms.flink_outputs import Outputs
from oncesink.transforms.flink_sink import InvokedSink, RichSinkFunction
from oncesink.transforms.flink_state import entry_of
from oncesink.transforms.gate import write_scope
from oncesink.transforms.keys import Stamped
from oncesink.transforms.prepare import Item, Preparer
from oncesink.transforms.shards import shard_of

from benchmarks.jobs.flink_state import bytes_a_new_key, restore_seconds
from tests.engines.flink_harness import KeyedHarness
from tests.unit.stored_filters import store

pytestmark = pytest.mark.flink

LEDGER = MemoryLedger("flink function")
TABLE = MemoryTable(LEDGER)
LINGER_MS = 500
GATE = Gate(
    scope="orders",
    key=Fields("id"),
    occurrence=SourcePosition("file", "pos"),
    ledger=LEDGER,
    batch=Batch(rows=4, linger=timedelta(milliseconds=LINGER_MS)),
)


@pytest.fixture(autouse=True)
def _empty_stores() -> Iterator[None]:
    forget_all()
    yield
    forget_all()


def entries(*records: Any, key: int = 7) -> list[tuple[Any, ...]]:
    """Return records as they come over the hop."""
    return [entry_of(key, record) for record in records]


def order(number: int, pos: int | None = None) -> dict[str, int]:
    """Return a record: an order's number, and where it was read."""
    return {"id": number, "pos": number if pos is None else pos}


def start(gate: Gate = GATE, sink: Any = TABLE, snapshot: bytes | None = None, **options: Any) -> KeyedHarness:
    """Start a subtask."""
    return KeyedHarness(GateFunction(gate, sink, Outputs(filters=sink is None), **options), snapshot)


def run(harness: KeyedHarness, *arrived: tuple[Any, ...]) -> list[Any]:
    """Deliver entries; return what came out."""
    return [outcome for entry in arrived for outcome in harness.process(entry)]


def ids(outcomes: list[Any]) -> list[int]:
    """Return the numbers of what came out on the main output."""
    return [each.record["id"] for each in outcomes if isinstance(each, Written)]


def written() -> list[int]:
    """Return the numbers of the orders in the table."""
    return [effect.record["id"] for effect in TABLE.effects]


def test_a_full_batch_goes_at_once() -> None:
    """Nothing is written before the batch is full, all of it when it is."""
    harness = start()
    arrived = entries(*map(order, range(4)))
    assert run(harness, *arrived[:3]) == []
    assert written() == []
    assert ids(run(harness, arrived[3])) == [0, 1, 2, 3]
    assert written() == [0, 1, 2, 3]


def test_a_batch_is_full_by_bytes_too() -> None:
    """Long records go before there are many of them."""
    gate = replace(GATE, batch=Batch(rows=100, bytes=300, record_bytes=300))
    harness = start(gate)
    outcomes = run(harness, *entries(*({**order(number), "text": "x" * 90} for number in range(3))))
    assert ids(outcomes) == [0, 1, 2]


def test_a_slow_stream_goes_after_the_linger_time() -> None:
    """A batch that does not fill up goes when its first record has waited for so long, and not earlier."""
    harness = start()
    run(harness, *entries(order(1), order(2)))
    assert harness.advance(LINGER_MS - 1) == []
    assert ids(harness.advance(LINGER_MS)) == [1, 2]


def test_the_timer_of_a_batch_that_went_by_count_does_not_cut_the_next_one() -> None:
    """The next batch gets its whole linger time."""
    harness = start()
    first = entries(*map(order, range(6)))
    run(harness, first[0])
    harness.advance(LINGER_MS - 100)
    run(harness, *first[1:5])
    assert harness.advance(LINGER_MS) == []
    assert ids(harness.advance(2 * LINGER_MS - 100)) == [4]


def test_the_end_of_the_input_takes_the_rest() -> None:
    """Processing-time timers do not fire there; the last partial batch is written all the same."""
    harness = start()
    run(harness, *entries(order(1)))
    assert ids(harness.finish()) == [1]


def test_what_waited_comes_back_with_a_checkpoint() -> None:
    """A restored buffer counts towards its batch, and its timers fire, whether or not a new record comes."""
    harness = start()
    arrived = entries(*map(order, range(4)))
    run(harness, *arrived[:3])
    snapshot = harness.snapshot()
    assert ids(run(start(snapshot=snapshot), arrived[3])) == [0, 1, 2, 3]
    forget_all()
    assert ids(start(snapshot=snapshot).advance(LINGER_MS)) == [0, 1, 2]
    forget_all()
    assert ids(start(snapshot=snapshot).finish()) == [0, 1, 2]


def test_a_smaller_batch_takes_a_larger_buffer_in_parts() -> None:
    """After `rows` was lowered a savepoint holds more than one batch."""
    harness = start(replace(GATE, batch=Batch(rows=50)))
    run(harness, *entries(*map(order, range(30))))
    restored = start(snapshot=harness.snapshot())
    assert sorted(ids(restored.finish())) == list(range(30))
    assert restored.function._session.metrics["flushes"] == 8


def test_each_outcome_has_its_output() -> None:
    """Written on the main output; duplicates and rejected records under their tags."""
    gate = replace(GATE, rejected="output")
    harness = start(gate)
    outcomes = run(harness, *entries(order(1), order(1, pos=9), {"pos": 3}, order(1)))
    assert [each for each in outcomes if isinstance(each, Written)] == [
        Written(order(1)),
        Written(order(1), replayed=True),
    ]
    tagged = {tag.tag_id: outcome for tag, outcome in (each for each in outcomes if not isinstance(each, Written))}
    assert tagged["duplicates"] == Duplicate(order(1, pos=9))
    assert isinstance(tagged["rejected"], Refused)


def test_a_filter_passes_bare_records() -> None:
    """What passes is the record itself; a replay of the same position passes again."""
    harness = start(sink=None)
    arrived = entries(order(1), order(2), order(1, pos=9), order(1))
    outcomes = run(harness, *arrived)
    assert sorted(each["id"] for each in outcomes[:3]) == [1, 1, 2]
    assert [outcome for tag, outcome in outcomes[3:]] == [Duplicate(order(1, pos=9))]


def test_a_rejected_record_stops_the_job_once_the_rest_is_written() -> None:
    """`rejected="raise"`: the others are there, the error names the record, the connections are closed."""
    harness = start()
    with pytest.raises(RecordsRejected, match="no_key"):
        run(harness, *entries(order(1), {"pos": 3}, order(2), order(4)))
    assert written() == [1, 2, 4]
    assert not harness.function._close.alive


class StoreClock:
    """The clock of the ledger's store: it travels to the worker and is the same there."""

    def monotonic(self) -> float:
        return memory_store(LEDGER.name).clock.monotonic()

    def sleep(self, seconds: float) -> None:
        memory_store(LEDGER.name).clock.sleep(seconds)


CLOCK = StoreClock()


class Held:
    """A ledger row that somebody else holds, and a clock for the store and the job."""

    def __init__(self, gate: Gate, sink: Any, record: dict[str, int], lease_seconds: float) -> None:
        self.clock = ManualClock()
        memory_store(LEDGER.name).clock = self.clock
        scope = write_scope(gate, sink)
        self.digest = Preparer(gate, scope).digest(record)
        self.ledger = LEDGER.open(scope)
        self.ledger.claim([Claim(self.digest, b"elsewhere", None)], owner=b"o" * 16, lease_seconds=lease_seconds)


def live_until(held: Held, harness: KeyedHarness, seconds: int) -> dict[int, list[int]]:
    """Let time go by, and timers fire; return what came out in each second."""
    found = {}
    for second in range(1, seconds):
        held.clock.now = second
        found[second] = ids(harness.advance(second * 1000))
    return {second: numbers for second, numbers in found.items() if numbers}


SINK = MemorySink()
EXTERNAL = replace(GATE, on_replay="write", lease=timedelta(seconds=30), grace=timedelta(seconds=10))


def test_a_record_in_doubt_waits_in_state_and_the_others_go_on() -> None:
    """It is asked again by timer until the lease of whoever holds it is over; then it is written."""
    held = Held(EXTERNAL, SINK, order(2), lease_seconds=30)
    harness = start(EXTERNAL, SINK, clock=CLOCK)
    assert ids(run(harness, *entries(*map(order, range(4))))) == [0, 1, 3]
    assert len(harness.state["oncesink-waiting", 7]) == 1
    assert live_until(held, harness, 60) == {41: [2]}
    assert ("oncesink-waiting", 7) not in harness.state


def test_new_records_do_not_wait_for_one_in_doubt() -> None:
    """The stream goes on in full batches, and in linger time, beside a record in doubt."""
    Held(EXTERNAL, SINK, order(2), lease_seconds=3000)
    harness = start(EXTERNAL, SINK, clock=CLOCK)
    run(harness, *entries(*map(order, range(4))))
    assert ids(run(harness, *entries(*map(order, range(10, 14))))) == [10, 11, 12, 13]
    run(harness, *entries(order(20)))
    assert ids(harness.advance(LINGER_MS)) == [20]


def test_at_the_end_of_the_input_a_record_in_doubt_is_waited_for() -> None:
    """There is no later timer: the last flush waits for lease and grace, then writes it."""
    held = Held(EXTERNAL, SINK, order(2), lease_seconds=30)
    harness = start(EXTERNAL, SINK, clock=CLOCK)
    run(harness, *entries(order(1), order(2)))
    assert sorted(ids(harness.finish())) == [1, 2]
    assert held.clock.now > 40


@pytest.mark.parametrize("finish", [True, False], ids=["end of input", "mid-stream"])
def test_a_record_that_stays_in_doubt_is_raised(finish: bool) -> None:
    """When the time of whoever holds it is over and it was asked once more, the error names the key."""
    held = Held(EXTERNAL, SINK, order(2), lease_seconds=30)
    rows = memory_store(LEDGER.name).rows

    class Renewing(ManualClock):
        """A clock on which somebody renews the lease all the time."""

        def monotonic(self) -> float:
            rows[held.digest] = rows[held.digest]._replace(lease_until=held.clock.now + 30)
            return held.clock.now

        def sleep(self, seconds: float) -> None:
            held.clock.sleep(seconds)

    memory_store(LEDGER.name).clock = Renewing()
    harness = start(EXTERNAL, SINK, clock=CLOCK)
    run(harness, *entries(order(1), order(2)))
    if finish:
        with pytest.raises(InDoubt, match=held.digest.hex()):
            harness.finish()
        return
    with pytest.raises(InDoubt, match=held.digest.hex()):
        live_until(held, harness, 60)
    assert held.clock.now >= 40


def test_what_waits_in_doubt_is_bounded() -> None:
    """A batch of records in doubt holds the stream back: the buffer does not grow."""
    clock = ManualClock()
    memory_store(LEDGER.name).clock = clock
    first = list(map(order, range(8)))
    scope = write_scope(EXTERNAL, SINK)
    digest = Preparer(EXTERNAL, scope).digest
    ledger = LEDGER.open(scope)
    ledger.claim([Claim(digest(record), b"elsewhere", None) for record in first], owner=b"o" * 16, lease_seconds=30)
    harness = start(EXTERNAL, SINK, clock=CLOCK)
    assert ids(run(harness, *entries(*first))) == list(range(8))
    assert clock.now > 40


class Picky(RichSinkFunction):
    """A sink that raises something that no pickle takes."""

    def invoke(self, value: Any, write: Write) -> None:
        raise Unspeakable(lambda: value)

    def close(self) -> None:
        CLOSED.append(type(self).__name__)


class Unspeakable(Exception):
    """An error that holds a function."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__("it went wrong")
        self.function = function


CLOSED: list[str] = []


def test_a_sink_that_raises_something_unpicklable_is_named() -> None:
    """The error says what the sink raised; its clients are closed; its claims can be taken over after their lease."""
    sink = InvokedSink(Picky())
    clock = ManualClock()
    memory_store(LEDGER.name).clock = clock
    harness = start(EXTERNAL, sink, clock=CLOCK)
    run(harness, *entries(order(1)))
    checkpoint = harness.snapshot()
    CLOSED.clear()
    with pytest.raises(InDoubt) as raised:
        harness.finish()
    assert "Unspeakable: it went wrong" in str(raised.value.__cause__)
    assert CLOSED == ["Picky"]
    clock.sleep(41)
    sound = InvokedSink(Accepting(Picky().target))
    assert ids(start(EXTERNAL, sound, snapshot=checkpoint, clock=CLOCK).finish()) == [1]


class Closed(Unavailable):
    """The same, from a sink that says that nothing was applied."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__("closed on Sundays")
        self.function = function


class Unwilling(Picky):
    """A sink that applies the first record and turns the others away."""

    def invoke(self, value: Any, write: Write) -> None:
        if value["id"] > 1:
            raise Closed(lambda: value)


def test_claims_for_which_nothing_was_applied_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the job fails, what is certain is finished and the rest given back: nobody waits for a lease."""
    # Or else the sink would be asked again for some seconds.
    monkeypatch.setattr(session, "Backoff", lambda: Backoff(attempts=1))
    memory_store(LEDGER.name).clock = ManualClock()
    sink = InvokedSink(Unwilling())
    harness = start(EXTERNAL, sink, clock=CLOCK)
    run(harness, *entries(order(1), order(2), order(3)))
    checkpoint = harness.snapshot()
    CLOSED.clear()
    with pytest.raises(Unavailable, match="closed on Sundays"):
        harness.finish()
    # A harness of the test before may be let go of meanwhile, and closes its own.
    assert CLOSED.count("Unwilling") == 1
    assert [row.finished for row in ledger_rows(EXTERNAL, sink, order(1), order(2), order(3))] == [True]
    sound = InvokedSink(Accepting(Unwilling().target))
    outcomes = start(EXTERNAL, sound, snapshot=checkpoint, clock=CLOCK).finish()
    assert [(each.record["id"], each.replayed) for each in outcomes] == [(1, True), (2, False), (3, False)]


def ledger_rows(gate: Gate, sink: Any, *records: Any) -> list[Any]:
    """Return the rows that the ledger has for records."""
    scope = write_scope(gate, sink)
    digests = [Preparer(gate, scope).digest(record) for record in records]
    return list(LEDGER.open(scope).read(digests).values())


class Accepting(Picky):
    """The same sink, mended."""

    def __init__(self, target: str) -> None:
        self._target = target

    @property
    def target(self) -> str:
        return self._target

    def invoke(self, value: Any, write: Write) -> None:
        return None


FILTERED = replace(GATE, membership=Bloom(capacity=2000, error_rate=0.01))


def test_the_filter_saves_looks_and_comes_back_with_a_checkpoint() -> None:
    """New keys are claimed at once; keys that the restored filter knows are looked up first."""
    harness = start(FILTERED)
    run(harness, *entries(*map(order, range(4))))
    assert harness.function._session.metrics["filter_negative"] == 4
    restored = start(FILTERED, snapshot=harness.snapshot())
    run(restored, *entries(*map(order, range(4))))
    assert restored.function._session.metrics["filter_positive"] == 4


def test_a_shard_without_state_begins_with_the_stored_filter(tmp_path: Path) -> None:
    """It knows the keys of its own shard, and the next checkpoint holds them: the files may go."""
    gate = replace(FILTERED, shards=3, start_from=str(tmp_path))
    prepare = Preparer(gate, write_scope(gate, TABLE))
    found = [prepare(order(number)) for number in range(60)]
    own = [each.record for each in found if isinstance(each, Item) and shard_of(each.claim.digest, 3) == 2][:6]
    store(tmp_path, gate, TABLE, own[:4])
    harness = start(gate)
    run(harness, *entries(*own[2:]))
    counted = harness.function._session.metrics
    assert (counted["filter_started"], counted["filter_positive"], counted["filter_negative"]) == (1, 2, 2)
    restored = start(replace(gate, start_from=None), snapshot=harness.snapshot())
    run(restored, *entries(*own[:4]))
    assert restored.function._session.metrics["filter_positive"] == 4


def test_files_that_are_missing_stop_no_job(tmp_path: Path) -> None:
    """That is counted, and the shard starts empty."""
    harness = start(replace(FILTERED, start_from=str(tmp_path / "nothing")))
    run(harness, *entries(*map(order, range(4))))
    assert harness.function._session.metrics["filter_not_started"] == 1
    assert sorted(written()) == list(range(4))


@pytest.mark.parametrize("name", ["oncesink-filter", "oncesink-filter-log"])
def test_a_damaged_filter_is_counted_and_the_job_goes_on(name: str) -> None:
    """Nothing is lost or doubled: the ledger decides. The damaged part is replaced, so it is counted once."""
    harness = start(FILTERED)
    run(harness, *entries(*map(order, range(4))))
    harness.state[name, 7] = [pickle.dumps(b"not a filter!")]
    restored = start(FILTERED, snapshot=harness.snapshot())
    run(restored, *entries(*map(order, range(2, 6))))
    assert sorted(written()) == list(range(6))
    assert restored.function._session.metrics["filter_damaged"] == 1
    again = start(FILTERED, snapshot=restored.snapshot())
    run(again, *entries(*map(order, range(4))))
    assert again.function._session.metrics["filter_damaged"] == 0


def test_filter_state_costs_few_bytes_a_new_key() -> None:
    """At most 24 bytes a new key, over whole cycles of compaction."""
    assert bytes_a_new_key(20_000) <= 24


def test_a_shard_with_a_million_keys_is_restored_within_a_second() -> None:
    """Snapshot and log of a large filter are read and decoded quickly."""
    assert restore_seconds(1_000_000) <= 1


STEPS = st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["linger", "checkpoint", "crash"])), max_size=60)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, gate=st.sampled_from([GATE, FILTERED]))
def test_nothing_is_lost_or_doubled_in_any_history(steps: list[Any], gate: Gate) -> None:
    """Deliveries of ten keys, timers, checkpoints and crashes in any order: each key that came is written once."""
    forget_all()
    source: list[dict[str, int]] = []
    harness, checkpoint = start(gate), (0, KeyedHarness(GateFunction(gate, TABLE, Outputs(filters=False))).snapshot())
    for step in steps:
        if step == "linger":
            harness.advance(harness.now_ms + LINGER_MS)
        elif step == "checkpoint":
            checkpoint = (len(source), harness.snapshot())
        elif step == "crash":
            harness = start(gate, snapshot=checkpoint[1])
            run(harness, *entries(*source[checkpoint[0] :]))
        else:
            source.append(order(step, pos=len(source)))
            run(harness, *entries(source[-1]))
    harness.finish()
    assert sorted(written()) == sorted({record["id"] for record in source})


def test_records_hop_to_the_shard_of_their_key() -> None:
    """Equal keys meet; records without a key are spread, and are refused behind the hop."""
    function = ShardFunction(GATE, write_scope(GATE, TABLE), (10, 11, 12))
    function.open(None)
    hops = [
        next(iter(function.process_element(record, None)))
        for record in (order(1), order(1, pos=5), {"pos": 1}, {"pos": 2})
    ]
    assert hops[0][0] == hops[1][0]
    assert [hop[0] for hop in hops[2:]] == [11, 12]


def test_a_stamp_crosses_the_hop_beside_its_record() -> None:
    """The record comes out bare, and is told apart by its stamp; no class of the library is pickled into state."""
    gate = replace(GATE, occurrence=ByStamp())
    function = ShardFunction(gate, write_scope(gate, TABLE), (7,))
    function.open(None)
    stamped = [Stamped(b"a", order(1)), Stamped(b"b", order(1)), Stamped(b"a", order(1))]
    hops = [entry for record in stamped for entry in function.process_element(record, None)]
    assert not any(b"oncesink" in pickle.dumps(hop) for hop in hops)
    harness = start(gate)
    run(harness, *hops)
    written_or_not = [each if isinstance(each, Written) else each[1] for each in harness.finish()]
    assert written_or_not == [Written(order(1)), Written(order(1), replayed=True), Duplicate(order(1))]


def test_a_stamp_as_key_tells_equal_records_apart() -> None:
    """Each is written once, however often it comes again: by its stamp, not by what is in it."""
    gate = replace(GATE, key=ByStamp(stable_order=True), occurrence=ByStamp(), rejected="output")
    function = ShardFunction(gate, write_scope(gate, TABLE), (7,))
    function.open(None)
    same = [Stamped(b"u_0", order(1)), Stamped(b"u_1", order(1)), order(1)]
    for replayed in (False, True):
        harness = start(gate)
        run(harness, *(entry for record in same for entry in function.process_element(record, None)))
        *found, (_, refused) = harness.finish()
        assert found == [Written(order(1), replayed=replayed)] * 2
        assert refused.reason == "no_position"
    assert written() == [1, 1]


def test_what_waits_in_doubt_keeps_its_occurrence() -> None:
    """A job that went on under another source label finds its own claim: the record is no duplicate of itself."""
    faults = Faults.at({("sink", "write", 1): Fault.LOSE_REPLY})
    memory_store(LEDGER.name).clock = clock = ManualClock()
    harness = start(EXTERNAL, FaultySink(SINK, faults), clock=CLOCK)
    run(harness, *entries(order(1)))
    assert harness.advance(LINGER_MS) == []
    relabelled = replace(EXTERNAL, occurrence=SourcePosition("file, second incarnation", "pos"))
    restored = start(relabelled, SINK, snapshot=harness.snapshot(), clock=CLOCK)
    clock.sleep(41)
    assert harness.finish() == [Written(order(1))]
    assert restored.finish() == [Written(order(1), replayed=True)]
