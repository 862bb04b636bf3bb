"""Filters that belong to partitions, and what is in hand of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from oncesink.connectors import CallableSink, KafkaMessage, KafkaSource, MemoryLedger, MemoryTable, Misconfigured
from oncesink.connectors.kafka_messages import Partition, Position
from oncesink.transforms import Bitmap, Bloom, Fields, Gate, KafkaPosition, OnceConsumer
from oncesink.transforms.kafka_filters import PartitionFilters
from oncesink.transforms.kafka_hand import Hand, Held
from oncesink.transforms.membership import Keys

ONE, TWO = Partition("orders", 1), Partition("orders", 2)
A, B, C = (bytes([n]) * 16 for n in range(3))


def test_each_partition_has_a_filter_of_its_own() -> None:
    """What was added in one is not known in another, and answers come in the order of the keys."""
    filters = PartitionFilters(Bloom(capacity=100, error_rate=0.001))
    filters.route({A: ONE, B: TWO, C: ONE})
    filters.add(Keys([A, B]))
    assert filters.query(Keys([C, B, A])).tolist() == [False, True, True]
    filters.route({A: TWO, B: ONE})
    assert filters.query(Keys([A, B])).tolist() == [False, False]


def test_a_filter_goes_with_its_partition_and_starts_cold() -> None:
    """The other member's keys are not known here when it comes back; those of the partitions that stayed are."""
    filters = PartitionFilters(Bloom(capacity=100, error_rate=0.001))
    filters.route({A: ONE, B: TWO})
    filters.add(Keys([A, B]))
    filters.drop({ONE})
    assert len(filters.live) == 1
    assert filters.query(Keys([A, B])).tolist() == [False, True]


def test_numbers_of_keys_reach_the_filter_of_their_partition() -> None:
    """A bitmap asks for the ids of just those keys that it is asked about."""
    filters = PartitionFilters(Bitmap(id="id", capacity=100))
    filters.route({A: ONE, B: TWO, C: ONE})
    filters.add(Keys([A, B], ids=[5, 6]))
    assert filters.query(Keys([A, B, C], ids=[5, 6, 7])).tolist() == [True, True, False]
    assert filters.query(Keys([A, B], ids=[6, 5])).tolist() == [False, False]


def held(partition: Partition, offset: int) -> Held:
    return Held(KafkaMessage(partition, offset, None, None, b"12345", [], 9), {"n": offset})


def test_what_is_let_go_is_neither_written_nor_committed() -> None:
    """Of the partitions that stay, reading goes on behind the last message."""
    hand = Hand()
    hand.take([held(ONE, 3), held(TWO, 8), held(ONE, 4), held(TWO, 9)])
    assert hand.size_bytes == 20
    assert hand.drop(frozenset({TWO})) == 2
    assert (len(hand), hand.size_bytes) == (2, 10)
    assert hand.finished() == {ONE: Position(5, 9)}
    assert (len(hand), hand.size_bytes, hand.finished()) == (0, 0, {})


def test_filters_that_were_stored_are_refused() -> None:
    """They are made for shards or for a whole; a partition's filter would not begin with one, in silence."""
    ledger = MemoryLedger(retention=timedelta(days=1))
    gate = Gate(
        scope="orders",
        key=Fields("id"),
        occurrence=KafkaPosition("c/1"),
        ledger=ledger,
        membership=Bloom(capacity=100, error_rate=0.01),
        start_from="/filters",
    )
    settings = {"bootstrap.servers": "-", "group.id": "g", "auto.offset.reset": "earliest"}
    with pytest.raises(Misconfigured, match="starts cold"):
        OnceConsumer(gate, MemoryTable(ledger), KafkaSource("orders", settings=settings))


@pytest.mark.parametrize("name", ["rejected", "parked"])
def test_an_output_that_nobody_reads_is_refused(name: str) -> None:
    """Such records would be committed, and nobody would hear of them."""
    ledger = MemoryLedger(retention=timedelta(days=1))
    gate = Gate(
        scope="orders",
        key=Fields("id"),
        occurrence=KafkaPosition("c/1"),
        ledger=ledger,
        on_replay="write",
        rejected="output" if name == "rejected" else "raise",
        parked="output" if name == "parked" else "raise",
    )
    sink = CallableSink(print, name="s")
    settings = {"bootstrap.servers": "-", "group.id": "g", "auto.offset.reset": "earliest"}
    source = KafkaSource("orders", settings=settings)
    with pytest.raises(Misconfigured, match=f"{name}='output' gives such records to results="):
        OnceConsumer(gate, sink, source)
    OnceConsumer(gate, sink, source, results=print).close()
