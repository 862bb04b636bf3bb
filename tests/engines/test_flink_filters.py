"""Filters of every kind in Flink's keyed state: streams ten times as long as planned, and ids in place of hashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.memory import forget_all
from oncesink.transforms.flink_function import GateFunction, ShardFunction
from oncesink.transforms.flink_outputs import Outputs
from oncesink.transforms.flink_state import entry_of
from oncesink.transforms.gate import Gate, write_scope
from oncesink.transforms.membership.rotation import MOST_ERROR

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
from tests.engines.flink_harness import KeyedHarness

pytestmark = pytest.mark.flink


@pytest.fixture(autouse=True)
def _empty_stores() -> Iterator[None]:
    forget_all()
    ALARMS.clear()
    yield
    forget_all()


def start(gate: Gate, snapshot: bytes | None = None) -> KeyedHarness:
    """Start a subtask."""
    return KeyedHarness(GateFunction(gate, TABLE, Outputs(filters=False)), snapshot)


@pytest.mark.parametrize("restarts", [0, 10])
def test_a_stream_ten_times_as_long_as_planned(restarts: int) -> None:
    """Generations follow each other in state, also over restarts.

    The rate of false positives stays below twice the setting all the time, each full generation gives one alarm, and
    what the stream brought last is known.
    """
    gate = replace(GATE, membership=SATURATED)
    harness, step = start(gate), 2000
    for at in range(0, STREAM, step):
        before = harness.function._session.metrics["filter_positive"]
        for record in orders(range(at, at + step), first_pos=at):
            harness.process(entry_of(7, record))
        metrics = harness.function._session.metrics
        assert metrics["filter_positive"] - before <= MOST_ERROR * PLANNED.error_rate * step
        if restarts:
            harness = start(gate, harness.snapshot())
    check_alarms()
    for record in orders(range(STREAM - 5000, STREAM), first_pos=STREAM):
        harness.process(entry_of(7, record))
    metrics = harness.function._session.metrics
    assert metrics["filter_positive"] >= 0.98 * 5000
    assert metrics["filter_generations"] >= 1
    found = harness.function._filters._live[7][1].filter.occupancy()
    assert found.generations == SATURATED.rotation.keep
    assert found.estimated_error_rate <= MOST_ERROR * PLANNED.error_rate
    assert len(TABLE.effects) == STREAM


def test_rotation_costs_few_bytes() -> None:
    """At most 32 bytes a new key, snapshots of all generations included."""
    harness = start(replace(GATE, membership=SATURATED))
    for record in orders(range(STREAM)):
        harness.process(entry_of(7, record))
    spent = sum(count for name, count in harness.written_bytes.items() if name != "oncesink-waiting")
    assert spent / STREAM <= 32


def test_a_bitmap_is_kept_in_state() -> None:
    """Ids are known after a restart, and records without one are rejected."""
    gate = replace(GATE, membership=NUMBERED, batch=replace(GATE.batch, rows=10))
    harness = start(gate)
    for record in orders(range(BASE, BASE + 10)):
        harness.process(entry_of(7, record))
    harness = start(gate, harness.snapshot())
    for record in orders([*range(BASE + 5, BASE + 13), BASE - 1, BASE], first_pos=50):
        harness.process(entry_of(7, record))
    assert harness.function._session.metrics["filter_positive"] == 6
    assert harness.function._session.metrics["filter_negative"] == 3
    assert harness.function._session.metrics["rejected"] == 1


def test_ids_choose_the_shard_of_a_bitmap() -> None:
    """Shard `id % shards`, so that its ids lie together; a record without an id goes anywhere, to be refused there."""
    gate = replace(GATE, membership=NUMBERED, shards=3)
    function = ShardFunction(gate, write_scope(gate, TABLE), (10, 11, 12))
    function.open(None)
    hops = [next(iter(function.process_element(record, None)))[0] for record in orders(range(BASE, BASE + 6))]
    assert hops == [10 + number % 3 for number in range(BASE, BASE + 6)]
    assert next(iter(function.process_element({"id": "x", "pos": 1}, None)))[0] in (10, 11, 12)
