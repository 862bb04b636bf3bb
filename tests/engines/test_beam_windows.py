"""Event time through the gate: timestamps and windows come out as they went in, and keys meet across windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("apache_beam", reason="Beam is not installed here")

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows, IntervalWindow, Sessions, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue
from oncesink.connectors.memory import forget_all
from oncesink.transforms import Batch
from oncesink.transforms.beam import DropDuplicates, ShardFn, WindowedShardFn, WriteOnce
from oncesink.transforms.beam_hop import unpack

from tests.engines.beam_world import GATHERED, forget_beam, gather, records_of
from tests.engines.engine_contract import GATE, TABLE, effects, order


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    forget_all()
    yield from forget_beam()
    forget_all()


def at_its_time(record: dict[str, Any]) -> TimestampedValue:
    """Let a record stand at its position, in seconds."""
    return TimestampedValue(record, record["pos"])


def placed(pipeline: beam.Pipeline, windows: Any, *records: dict[str, Any]) -> Any:
    """Return records at their times in windows."""
    return records_of(pipeline, records) | beam.Map(at_its_time) | beam.WindowInto(windows)


def run(windows: Any, *records: dict[str, Any], transform: Any = None) -> dict[str, list[Any]]:
    """Run records through a writer; return what came out, each with its time and window."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    gather(placed(pipeline, windows, *records) | (transform or WriteOnce(GATE, TABLE)), placed=True)
    pipeline.run().wait_until_finish()
    return GATHERED


@pytest.mark.parametrize("rows", [1, 1000])
def test_every_outcome_stands_where_its_record_stood(rows: int) -> None:
    """Written, duplicate and rejected ones keep time and window, whichever record filled their batch."""
    records = [order(1, 5), order(2, 65), order(1, 70), {"pos": 130, "text": "no id"}]
    gate = replace(GATE, batch=Batch(rows=rows), shards=1)
    found = run(FixedWindows(60), *records, transform=WriteOnce(gate, TABLE))
    told = {
        name: [(each.record["pos"], seconds, window) for each, seconds, window in outcomes]
        for name, outcomes in found.items()
    }
    assert sorted(told["written"]) == [(5, 5.0, IntervalWindow(0, 60)), (65, 65.0, IntervalWindow(60, 120))]
    assert told["duplicates"] == [(70, 70.0, IntervalWindow(60, 120))]
    assert told["rejected"] == [(130, 130.0, IntervalWindow(120, 180))]


def test_equal_keys_in_different_windows_meet() -> None:
    """An order is written once, not once a window: also where its second send is an hour late."""
    found = run(FixedWindows(60), *(order(number % 5, number * 100) for number in range(50)))
    assert effects(TABLE) == [0, 1, 2, 3, 4]
    assert len(found["duplicates"]) == 45


def test_a_replay_in_windows_is_told_from_a_second_send() -> None:
    """The occurrence tells, and no window does."""
    run(FixedWindows(60), order(1, 5))
    GATHERED.clear()
    found = run(FixedWindows(60), order(1, 5), order(1, 500))
    assert [each.replayed for each, *_ in found["written"]] == [True]
    assert [each.record["pos"] for each, *_ in found["duplicates"]] == [500]


def test_a_record_in_several_windows_is_one_delivery() -> None:
    """It comes out once in each of its windows, and causes one effect."""
    found = run(SlidingWindows(60, 30), order(1, 40))
    assert sorted(window.start for _, _, window in found["written"]) == [0, 30]
    assert effects(TABLE) == [1]


@pytest.mark.parametrize("function", [ShardFn, WindowedShardFn])
def test_a_parcel_holds_the_watermark_for_its_earliest_record(function: Any) -> None:
    """Records come in any order; were the parcel later than one of them, its outcome would be dropped as late."""
    shard = function(replace(GATE, shards=1), TABLE)
    shard.start_bundle()
    window = IntervalWindow(0, 120)
    for seconds in (70, 5, 90):
        place = WindowedValue(None, Timestamp(seconds), (window,))
        assert not list(shard.process(order(seconds, seconds), *([place] if function is ShardFn else [place, window])))
    (parcel,) = shard.finish_bundle()
    assert parcel.timestamp == 5
    assert [float(item.context.timestamp) for item in unpack(parcel.value[1]).items] == [70.0, 5.0, 90.0]


def test_timestamps_are_kept_without_windows_too() -> None:
    """With default windowing the time of each record comes out."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    records = records_of(pipeline, [order(1, 5), order(1, 70)]) | beam.Map(at_its_time)
    gather(records | WriteOnce(GATE, TABLE), placed=True)
    pipeline.run().wait_until_finish()
    assert [seconds for _, seconds, _ in GATHERED["written"]] == [5.0]
    assert [seconds for _, seconds, _ in GATHERED["duplicates"]] == [70.0]


@pytest.mark.parametrize(
    "windows", [FixedWindows(60), Sessions(30), SlidingWindows(60, 30)], ids=lambda each: type(each).__name__
)
def test_outputs_have_the_windowing_of_the_input(windows: Any) -> None:
    """What follows groups by the same windows, on every output."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    records = placed(pipeline, windows, order(1, 1))
    for outputs in (records | WriteOnce(GATE, TABLE), records | DropDuplicates(GATE)):
        assert {name: output.windowing for name, output in outputs.items()} == dict.fromkeys(outputs, records.windowing)


def test_triggers_and_panes_go_through() -> None:
    """What follows fires as the input was told to, and each outcome knows the pane that its record came in."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    early = beam.WindowInto(
        FixedWindows(60),
        trigger=AfterWatermark(early=AfterCount(1)),
        accumulation_mode=AccumulationMode.DISCARDING,
    )
    records = records_of(pipeline, [order(1, 5), order(2, 6)]) | beam.Map(at_its_time) | early
    once = records | WriteOnce(GATE, TABLE)
    assert once.written.windowing == records.windowing
    assert not records.windowing.is_default()
    place = WindowedValue(
        None, Timestamp(5), (IntervalWindow(0, 60),), PaneInfo(True, False, PaneInfoTiming.EARLY, 0, -1)
    )
    shard = WindowedShardFn(replace(GATE, shards=1), TABLE)
    shard.start_bundle()
    shard.process(order(1, 5), place, IntervalWindow(0, 60))
    (parcel,) = shard.finish_bundle()
    assert unpack(parcel.value[1]).items[0].context.pane_info == place.pane_info


def test_sessions_are_merged_behind_a_filter() -> None:
    """A grouping behind it finds the sessions that the records themselves make, and no duplicate in them."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    records = [order(1, 0), order(2, 20), order(3, 45), order(1, 60), order(4, 300)]
    passed = (placed(pipeline, Sessions(30), *records) | DropDuplicates(GATE)).passed
    keyed = passed | beam.Map(lambda record: ("all", record["id"])) | beam.GroupByKey()
    gather({"sessions": keyed}, placed=True)
    pipeline.run().wait_until_finish()
    found = sorted((window.start, window.end, sorted(numbers)) for (_, numbers), _, window in GATHERED["sessions"])
    assert found == [(0, 75, [1, 2, 3]), (300, 330, [4])]
