"""Bundles that fail and come again: nothing is lost, nothing happens twice, no connection stays open.

The runner rolls its state back and repeats the bundle with a new function, up to four times; the stores keep what was
committed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("apache_beam", reason="Beam is not installed here")

import apache_beam as beam
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing import test_stream
from apache_beam.transforms.window import GlobalWindows
from oncesink.connectors.faults import Call, Fault, Faults
from oncesink.connectors.faulty import FaultyLedger, FaultySink
from oncesink.connectors.memory import forget_all
from oncesink.connectors.memory_sinks import MemorySink
from oncesink.transforms import Batch
from oncesink.transforms.beam import DropDuplicates, GateFn, ShardFn, WriteOnce
from oncesink.transforms.beam_hop import unpack

from tests.engines.beam_world import GATHERED, OPENED, CountedLedger, forget_beam, gather
from tests.engines.engine_contract import EXTERNAL, GATE, LEDGER, TABLE, effects, ids, order

FAILED: list[str] = []
"""What broke, so that it breaks once."""


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    forget_all()
    FAILED.clear()
    yield from forget_beam()
    FAILED.clear()
    forget_all()


class WorkerDied(Exception):
    """What nobody in the gate handles."""


def dies_at(part: str, verb: str, nth: int) -> Faults:
    """Return a script in which a worker dies before a call."""

    def choose(call: Call) -> Fault | None:
        if call[:3] == (part, verb, nth):
            FAILED.append(verb)
            raise WorkerDied(f"before {part} {verb} {nth}")
        return None

    return Faults(choose)


class DiesInFinishBundle(GateFn):
    """A gate whose worker dies once, after everything was written and before the bundle is committed."""

    def finish_bundle(self) -> Any:
        """Finish, then fail."""
        found = super().finish_bundle()
        if not FAILED:
            FAILED.append("finish_bundle")
            raise WorkerDied("after the last write")
        return found


def stream(*bundles: Sequence[dict[str, Any]]) -> test_stream.TestStream:
    """Return a source whose bundles are known."""
    source = test_stream.TestStream()
    for number, records in enumerate(bundles):
        source = source.add_elements(list(records)).advance_watermark_to(1000 * (number + 1))
    return source.advance_watermark_to_infinity()


def run(transform: Any, *bundles: Sequence[dict[str, Any]]) -> None:
    """Run bundles through a transform."""
    pipeline = beam.Pipeline(runner=BundleBasedDirectRunner())
    gather(pipeline | stream(*bundles) | transform)
    pipeline.run().wait_until_finish()


RECORDS = [order(number, number) for number in range(10)]
COUNTED = replace(GATE, ledger=CountedLedger(LEDGER), batch=Batch(rows=4), shards=1)


@pytest.mark.parametrize(
    ("part", "verb", "nth"),
    [
        ("ledger", "open", 1),
        ("ledger", "claim", 2),
        ("sink", "write", 2),
        ("ledger", "commit", 1),
        ("ledger", "commit", 3),
    ],
)
def test_a_worker_that_dies_in_a_bundle_loses_nothing_and_repeats_nothing(part: str, verb: str, nth: int) -> None:
    """Batches that were committed come again as replays, the others are written; each record has one outcome."""
    faults = dies_at(part, verb, nth)
    gate = replace(COUNTED, ledger=CountedLedger(LEDGER, faults))
    run(WriteOnce(gate, FaultySink(TABLE, faults)), RECORDS)
    assert [verb] == FAILED
    assert effects(TABLE) == ids(GATHERED["written"]) == list(range(10))
    assert not GATHERED["duplicates"]
    committed_before = {("claim", 2): 4, ("write", 2): 4, ("commit", 3): 8}.get((verb, nth), 0)
    assert sum(each.replayed for each in GATHERED["written"]) == committed_before


def test_a_sink_that_raises_in_the_middle_of_a_bundle_is_repeated() -> None:
    """A sink that recognises keys gets the failed batch again, and no effect twice."""
    faults = dies_at("sink", "write", 2)
    sink = MemorySink(drops_by_key=True)
    run(WriteOnce(COUNTED, FaultySink(sink, faults)), RECORDS)
    assert FAILED == ["write"]
    assert effects(sink) == ids(GATHERED["written"]) == list(range(10))


def test_an_external_sink_is_not_called_twice_for_what_was_finished() -> None:
    """Its first batch is in the ledger when the worker dies: the replay reports it and does not send it."""
    faults = dies_at("ledger", "claim", 2)
    sink = MemorySink()
    gate = replace(EXTERNAL, ledger=FaultyLedger(LEDGER, faults), batch=Batch(rows=4), shards=1)
    run(WriteOnce(gate, sink), RECORDS)
    assert effects(sink) == ids(GATHERED["written"]) == list(range(10))
    assert sum(each.replayed for each in GATHERED["written"]) == 4


def test_a_bundle_that_fails_after_its_last_write_is_reported_as_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The effects are there, the bundle is not committed: its replay brings all of it on `written`."""
    monkeypatch.setattr("oncesink.transforms.beam.GateFn", DiesInFinishBundle)
    run(WriteOnce(COUNTED, TABLE), RECORDS, [order(3, 77), order(11, 11)])
    assert FAILED == ["finish_bundle"]
    assert effects(TABLE) == [*range(10), 11]
    assert [each.record["id"] for each in GATHERED["written"] if each.replayed] == list(range(10))
    assert [each.record["pos"] for each in GATHERED["duplicates"]] == [77]


def test_a_filter_passes_what_a_failed_bundle_had_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner took back what had passed, so it passes again, once."""
    monkeypatch.setattr("oncesink.transforms.beam.GateFn", DiesInFinishBundle)
    run(DropDuplicates(COUNTED), RECORDS, [order(3, 77), order(11, 11)])
    assert FAILED == ["finish_bundle"]
    assert sorted(each["id"] for each in GATHERED["passed"]) == [*range(10), 11]
    assert [each.record["pos"] for each in GATHERED["duplicates"]] == [77]


@pytest.mark.parametrize("verb", ["claim", "commit"])
def test_connections_are_closed_when_a_bundle_fails(verb: str) -> None:
    """The failed bundle's session is closed although its worker gets no other call."""
    faults = dies_at("ledger", verb, 2)
    gate = replace(COUNTED, ledger=CountedLedger(LEDGER, faults))
    run(WriteOnce(gate, TABLE), RECORDS)
    gc.collect()
    assert [verb] == FAILED
    assert OPENED["all"] >= 2
    assert OPENED["open"] == 0


def parcels(*records: dict[str, Any]) -> list[tuple[int, bytes]]:
    """Return records as they come over the hop."""
    function = ShardFn(COUNTED, TABLE)
    function.start_bundle()
    found = [each for record in records for each in function.process(record, GlobalWindows.windowed_value(None))]
    return [each.value for each in [*found, *function.finish_bundle()]]


@pytest.mark.parametrize("rows", [1, 1000], ids=["in process", "in finish_bundle"])
def test_a_failed_bundle_closes_at_once(rows: int) -> None:
    """No call of the runner's is needed, nor the garbage collector: the next bundle opens anew."""
    ledger = CountedLedger(LEDGER, dies_at("ledger", "claim", 1))
    function = GateFn(replace(COUNTED, ledger=ledger, membership=None, batch=Batch(rows=rows)), TABLE)
    function.setup()
    function.start_bundle()
    assert OPENED["open"] == 1
    with pytest.raises(WorkerDied):
        drive(function, *parcels(order(1, 1)))
    assert OPENED["open"] == 0
    function.start_bundle()
    assert (OPENED["open"], OPENED["all"]) == (1, 2)
    assert len(drive(function, *parcels(order(1, 1)))) == 1
    function.teardown()
    function.teardown()
    assert OPENED["open"] == 0


def drive(function: GateFn, *arrived: tuple[int, bytes]) -> list[Any]:
    """Let parcels pass through a bundle that has started; return what came out. For a gate without filter."""
    nothing: Any = None
    found = [each for parcel in arrived for each in function.process(parcel, nothing, nothing, nothing)]
    return [*found, *function.finish_bundle()]


def test_what_a_bundle_left_behind_is_not_written_with_the_next_one() -> None:
    """A bundle may fail in a step that is not ours: then its records come again, and these here are out of date."""
    nothing: Any = None
    function = GateFn(replace(COUNTED, membership=None, batch=Batch()), TABLE)
    function.setup()
    function.start_bundle()
    assert list(function.process(parcels(order(1, 1))[0], nothing, nothing, nothing)) == []
    function.start_bundle()
    assert len(drive(function, *parcels(order(2, 2)))) == 1
    function.teardown()
    assert effects(TABLE) == [2]


def test_a_forgotten_function_closes_too() -> None:
    """Not every runner calls `teardown`."""
    function = GateFn(COUNTED, TABLE)
    function.setup()
    del function
    gc.collect()
    assert (OPENED["open"], OPENED["all"]) == (0, 1)


def test_a_bundle_that_fails_again_and_again_fails_the_job() -> None:
    """What is wrong for ever is not hidden by repeats, and leaves no connection open."""

    def choose(call: Call) -> Fault | None:
        if call[:2] == ("ledger", "claim"):
            raise WorkerDied("always")
        return None

    faults = Faults(choose)
    gate = replace(COUNTED, ledger=CountedLedger(LEDGER, faults))
    with pytest.raises(WorkerDied):
        run(WriteOnce(gate, TABLE), RECORDS)
    gc.collect()
    assert effects(TABLE) == []
    assert OPENED["open"] == 0


def test_what_the_filter_knows_survives_its_bundle() -> None:
    """Keys of an earlier bundle are looked up, new ones are claimed at once: the filter comes back from state."""
    faults = Faults()
    gate = replace(COUNTED, ledger=CountedLedger(LEDGER, faults), batch=Batch(rows=1000))
    again = [order(number, 100 + number) for number in range(10)]
    run(WriteOnce(gate, TABLE), RECORDS, again, [order(50, 50)])
    asked = [verb for verb in faults.verbs("ledger") if verb in {"claim", "read"}]
    assert asked == ["claim", "read", "claim"]


def test_what_a_failed_bundle_gathered_before_the_hop_is_forgotten() -> None:
    """It comes again with the bundle's replay: a worker that goes on must not send it twice."""
    function = ShardFn(GATE, TABLE)
    function.start_bundle()
    assert list(function.process(order(1, 1), GlobalWindows.windowed_value(None))) == []
    function.start_bundle()
    list(function.process(order(2, 2), GlobalWindows.windowed_value(None)))
    found = [unpack(each.value[1]) for each in function.finish_bundle()]
    assert [item.record["id"] for parcel in found for item in parcel.items] == [2]
    assert list(function.finish_bundle()) == []
