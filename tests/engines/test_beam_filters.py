"""Filters of every kind in Beam's keyed state: streams ten times as long as planned, and ids in place of hashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("apache_beam", reason="Beam is not installed here")

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from oncesink.connectors.memory import forget_all
from oncesink.transforms import Counts
from oncesink.transforms.beam import WriteOnce
from oncesink.transforms.beam_state import ShardFilters
from oncesink.transforms.membership.rotation import MOST_ERROR

from tests.engines.beam_world import counts, forget_beam, gather, records_of
from tests.engines.filter_world import (
    ALARMS,
    BASE,
    GATE,
    NUMBERED,
    PLANNED,
    SATURATED,
    STREAM,
    TABLE,
    check_alarms,
    orders,
)
from tests.unit.stored_filters import store


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    forget_all()
    ALARMS.clear()
    yield from forget_beam()
    forget_all()


def gauges(result: object) -> dict[str, int]:
    """Return the library's levels of a job."""
    wanted = beam.metrics.MetricsFilter().with_namespace("oncesink")
    found = result.metrics().query(wanted)["gauges"]  # type: ignore[attr-defined]
    return {each.key.metric.name: each.result.value for each in found}


def test_a_stream_ten_times_as_long_as_planned() -> None:
    """The rate of false positives stays below twice the setting, and each full generation gives one alarm."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    gather(records_of(pipeline, orders(range(STREAM))) | WriteOnce(replace(GATE, membership=SATURATED), TABLE))
    result = pipeline.run()
    result.wait_until_finish()
    assert counts(result)["filter_positive"] <= MOST_ERROR * PLANNED.error_rate * STREAM
    assert len(TABLE.effects) == STREAM
    check_alarms()
    assert gauges(result)["filter_generations"] >= 1


def test_each_shard_s_bitmap_knows_how_many_there_are() -> None:
    """So that its ids lie densely: its pages are for `shards` times as many ids."""
    filters = ShardFilters.of(replace(GATE, membership=NUMBERED, shards=4), Counts())
    assert filters is not None
    assert filters._recipe == NUMBERED.for_shards(4)


def test_a_bitmap_tells_new_ids_from_known_ones() -> None:
    """Over several shards, within one job: a second send is looked up, a new id is not; an unfit id is rejected."""
    gate = replace(GATE, membership=NUMBERED, shards=4, batch=replace(GATE.batch, rows=50))
    pipeline = beam.Pipeline(runner=FnApiRunner())
    ids = [*range(BASE, BASE + 400), BASE - 1, *range(BASE, BASE + 400)]
    gather(records_of(pipeline, orders(ids)) | WriteOnce(gate, TABLE))
    result = pipeline.run()
    result.wait_until_finish()
    found = counts(result)
    assert found["written"] == 400
    assert found["rejected"] == 1
    assert found["duplicates"] == 400
    assert found["filter_negative"] >= 400
    assert found["filter_negative"] + found["filter_positive"] == found["ledger_claimed"] + found["ledger_read"]
    assert found["ledger_claimed"] == 400


def test_shards_begin_with_stored_filters(tmp_path: Path) -> None:
    """A job without state knows the keys that `oncesink rebuild` stored: they are looked up, new ones claimed."""
    gate = replace(GATE, shards=4, membership=PLANNED, start_from=str(tmp_path))
    store(tmp_path, gate, TABLE, orders(range(200)))
    pipeline = beam.Pipeline(runner=FnApiRunner())
    gather(records_of(pipeline, orders(range(100, 300))) | WriteOnce(gate, TABLE))
    result = pipeline.run()
    result.wait_until_finish()
    found = counts(result)
    assert found["filter_started"] == 4
    assert found["filter_positive"] >= 100
    assert found["filter_negative"] >= 95
    assert found["written"] == 200
