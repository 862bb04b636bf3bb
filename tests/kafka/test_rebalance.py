"""Partitions that go to another member, or come back, while messages are in hand."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors import CallableSink, KafkaSource, MemoryLedger, MemoryTable
from oncesink.transforms import Batch, Bloom, Results

from tests.kafka.test_consumer import Outage
from tests.kafka.world import SECONDS, Kafka, gate_of, in_hand, orders, running

WAYS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 200},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 200},
    "consumer protocol": {"group_protocol": "consumer"},
}


@pytest.fixture(params=WAYS)
def source(request: pytest.FixtureRequest, broker: Kafka) -> tuple[str, KafkaSource]:
    """Give a new topic and a source of it, for each way in which groups rebalance."""
    topic = broker.topic()
    return topic, broker.source(topic, **WAYS[request.param])


def test_a_rebalance_in_mid_batch_loses_and_doubles_nothing(broker: Kafka, source: tuple[str, KafkaSource]) -> None:
    """What one member has in hand of partitions that go is let go uncommitted, and the other one writes it."""
    topic, read = source
    ledger = MemoryLedger()
    table = MemoryTable(ledger)
    broker.send(topic, orders(range(400)))
    slow = gate_of(ledger, batch=Batch(linger=timedelta(minutes=1)), membership=Bloom(capacity=1000, error_rate=0.01))
    with running(slow, table, read) as first:
        first.until(lambda: in_hand(first) == 400)
        with running(gate_of(ledger), table, read) as second:
            second.until(lambda: len(second.seen) > 0 and len(second.seen) + in_hand(first) == 400)
            assert first.metrics["put_back"] > 0
            assert len(table.effects) == len(second.seen) < 400
            assert broker.committed(topic) == len(second.seen)
            assert first.consumer is not None
            first.consumer.stop()
            first.until(lambda: len(first.seen.written) + len(second.seen.written) == 400)
    assert Counter(each.record["order_id"] for each in table.effects) == Counter(range(400))
    assert not any(each.replayed for each in [*first.seen.written, *second.seen.written])
    assert broker.committed(topic) == 400


def test_a_rebalance_while_the_sink_is_away_keeps_what_stays(broker: Kafka, source: tuple[str, KafkaSource]) -> None:
    """A paused member gives up the partitions that go, keeps the rest of its batch, and writes it when it can."""
    topic, read = source
    ledger, away, there = MemoryLedger(), Outage(), Outage()
    there.back.set()
    broker.send(topic, orders(range(200)))
    gate = gate_of(
        ledger, on_replay="write", lease=timedelta(seconds=2), grace=timedelta(0), batch=Batch(rows=400, linger=SHORT)
    )
    with running(gate, sink(away), read) as first:
        first.until(lambda: first.metrics["repeats"] >= 1)
        with running(gate, sink(there), read) as second:
            second.until(lambda: len(second.seen) > 0 and first.metrics["put_back"] > 0)
            assert away.written == []
            away.back.set()
            first.until(lambda: len(first.seen.written) + len(second.seen.written) == 200)
    numbers = [each["order_id"] for each in [*away.written, *there.written]]
    assert sorted(numbers) == list(range(200))
    assert broker.committed(topic) == 200


SHORT = timedelta(milliseconds=300)


def sink(where: Outage) -> CallableSink:
    """Return an external sink."""
    return CallableSink(where, name="sink", timeout=timedelta(milliseconds=500))


def test_a_member_that_was_thrown_out_commits_nothing_any_more(broker: Kafka) -> None:
    """It stood still between finish and commit. The other one reads the same again, as replays, and goes on."""
    topic, outage, goes_on = broker.topic(), Outage(), threading.Event()
    outage.back.set()
    broker.send(topic, orders(range(100)))
    gate = gate_of(on_replay="write", lease=timedelta(seconds=1), grace=timedelta(0), batch=Batch(linger=SHORT))
    read = broker.source(topic, session_timeout_ms=1000, max_poll_interval_ms=3500, heartbeat_interval_ms=200)
    finished: list[Results] = []

    def stand_still(results: Results) -> None:
        finished.append(results)
        assert goes_on.wait(SECONDS)

    with running(gate, sink(outage), read, results=stand_still) as first:
        first.until(lambda: finished)
        with running(gate, sink(outage), read) as second:
            second.until(lambda: len(second.seen.written) == 100)
            assert all(each.replayed for each in second.seen.written)
            broker.send(topic, orders(range(100, 120)))
            second.until(lambda: broker.committed(topic) == 120)
            goes_on.set()
            first.until(lambda: first.metrics["commits_failed"] > 0)
            assert broker.committed(topic) == 120
    assert sorted(each["order_id"] for each in outage.written) == list(range(120))
    assert broker.committed(topic) == 120
