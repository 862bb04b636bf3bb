"""What `OnceConsumer` promises on a real broker; some of it on the client's mock cluster as well."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from oncesink.connectors import (
    CallableSink,
    MemoryLedger,
    MemorySink,
    MemoryTable,
    RecordsRejected,
    Secret,
    Unavailable,
)
from oncesink.connectors.errors import Misconfigured
from oncesink.transforms import Batch, Bloom, Header, OnceConsumer, Results, uuid_header

from tests.kafka.world import QUIET, SECONDS, Kafka, gate_of, in_hand, orders, running
from tests.kafka_broker import KafkaBroker

BLOOM = Bloom(capacity=10_000, error_rate=0.01)


def test_what_a_producer_sends_twice_is_written_once(kafka: Kafka) -> None:
    """Each order has one row, whoever sent it again; and everything is committed behind its last message."""
    topic, ledger = kafka.topic(), MemoryLedger()
    kafka.send(topic, orders([*range(300), *range(0, 300, 3)]))
    kafka.send(topic, orders(range(0, 300, 2)))
    table = MemoryTable(ledger)
    with running(gate_of(ledger, membership=BLOOM), table, kafka.source(topic)) as it:
        it.until(lambda: len(it.seen) >= 550)
    assert sorted(each.record["order_id"] for each in it.seen.written) == list(range(300))
    assert len(it.seen.duplicates) == 250
    assert kafka.committed(topic) == 550
    assert it.metrics["filter_negative"] >= 300


def test_a_restart_goes_on_behind_what_was_committed(broker: Kafka) -> None:
    """A second run reads the rest and nothing else."""
    topic, gate = broker.topic(), gate_of(ledger := MemoryLedger())
    broker.send(topic, orders(range(50)))
    with running(gate, MemoryTable(ledger), broker.source(topic)) as first:
        first.until(lambda: len(first.seen) == 50)
    broker.send(topic, orders(range(50, 60)))
    with running(gate, MemoryTable(ledger), broker.source(topic)) as second:
        second.until(lambda: len(second.seen) >= 10)
    assert sorted(each.record["order_id"] for each in second.seen.written) == list(range(50, 60))
    assert len(second.seen) == 10


def test_a_stop_finishes_what_is_in_hand(broker: Kafka) -> None:
    """Messages whose batch would have waited for a minute are written and committed before it leaves the group."""
    topic, ledger = broker.topic(), MemoryLedger()
    broker.send(topic, orders(range(20)))
    gate = gate_of(ledger, batch=Batch(linger=timedelta(minutes=1)))
    with running(gate, MemoryTable(ledger), broker.source(topic)) as it:
        it.until(lambda: it.consumer is not None and len(it.consumer._hand) == 20)
        assert len(it.seen) == 0
        assert broker.committed(topic) == 0
    assert len(it.seen.written) == 20
    assert broker.committed(topic) == 20


def test_a_producers_uuid_says_what_was_sent_twice(broker: Kafka) -> None:
    """The header names the effect: the same headers again are a second send, whatever else is the same."""
    topic, ledger = broker.topic(), MemoryLedger()
    once, again = uuid_header([("trace", b"1")]), uuid_header()
    value = b'{"amount": 5}'
    broker.send(topic, [(b"k", value, once), (b"k", value, again), (b"other", value, uuid_header(once))])
    gate = gate_of(ledger, key=Header("uuid", headers="_headers"))
    with running(gate, MemoryTable(ledger), broker.source(topic)) as it:
        it.until(lambda: len(it.seen) == 3)
    assert len(it.seen.written) == 2
    assert len(it.seen.duplicates) == 1


POISON = {
    "tombstone": (b"k", None, ()),
    "not_unicode": (b"k", b'{"order_id": "\xff"}', ()),
    "not_json": (b"k", b"order 7", ()),
    "wrong_type": (b"k", b"[7]", ()),
    "no_key": (None, b'{"amount": 7}', ()),
    "not_finite": (b"k", b'{"order_id": 7, "amount": NaN}', ()),
}


def test_each_poison_message_is_rejected_by_name_and_kept(kafka: Kafka) -> None:
    """None is lost, none stops the others, and each stands in the dead letters, whole, before it is committed."""
    topic, ledger, letters = kafka.topic(), MemoryLedger(), MemorySink("letters")
    kafka.send(topic, [*orders(range(10)), *POISON.values(), *orders(range(10, 20))])
    with running(gate_of(ledger, rejected=letters), MemoryTable(ledger), kafka.source(topic)) as it:
        it.until(lambda: len(it.seen) == 20 + len(POISON))
    written = [each.record for each in letters.effects]
    assert sorted(each["reason"] for each in written) == sorted(POISON)
    assert len({(each["record"]["_partition"], each["record"]["_offset"]) for each in written}) == len(POISON)
    assert {each["record"].get("_value") for each in written} >= {None, b"order 7", b"[7]"}
    assert kafka.committed(topic) == 20 + len(POISON)


def test_a_poison_message_that_nobody_takes_ends_it_uncommitted(broker: Kafka) -> None:
    """Where nothing is said of rejected records they raise, and stand there again after the next start."""
    topic, ledger = broker.topic(), MemoryLedger()
    broker.send(topic, [POISON["not_json"]])
    for _ in range(2):
        with (
            pytest.raises(RecordsRejected, match="not_json"),
            running(gate_of(ledger), MemoryTable(ledger), broker.source(topic)) as it,
        ):
            it.ended_by()
    assert broker.committed(topic) == 0


def test_nothing_is_committed_before_dead_letters_are_taken(broker: Kafka) -> None:
    """Who takes them is away: the batch is held, and its good records are written once all the same."""
    topic, ledger, outage = broker.topic(), MemoryLedger(), Outage()
    broker.send(topic, [*orders(range(5)), POISON["not_json"]])
    letters = CallableSink(outage, name="letters")
    table = MemoryTable(ledger)
    with running(gate_of(ledger, rejected=letters), table, broker.source(topic)) as it:
        it.until(lambda: it.metrics["repeats"] >= 1)
        assert broker.committed(topic) == 0
        outage.back.set()
        it.until(lambda: broker.committed(topic) == 6)
    assert [each["reason"] for each in outage.written] == ["not_json"]
    assert len(table.effects) == 5


def test_where_it_may_not_begin_anywhere_it_says_what_to_do(broker: Kafka) -> None:
    """`auto.offset.reset=error` and no offset: for groups whose beginning somebody sets."""
    topic, ledger = broker.topic(), MemoryLedger()
    broker.send(topic, orders(range(1)))
    with (
        pytest.raises(Misconfigured, match="set the group's offset"),
        running(gate_of(ledger), MemoryTable(ledger), broker.source(topic, auto_offset_reset="error")) as it,
    ):
        raise it.ended_by()


def test_a_password_that_is_refused_ends_it(broker: Kafka, kafka_broker: KafkaBroker) -> None:
    """In one line that does not show it, not by asking for ever; with the right one it reads."""
    topic, ledger = broker.topic(), MemoryLedger()
    broker.send(topic, orders(range(5)))
    guarded: dict[str, Any] = {name.replace(".", "_"): value for name, value in kafka_broker.guarded.items()}
    wrong = broker.source(topic, **guarded | {"sasl_password": Secret.literal("hunter2")})
    with (
        pytest.raises(Misconfigured, match="does not let this client in") as refused,
        running(gate_of(ledger), MemoryTable(ledger), wrong) as it,
    ):
        raise it.ended_by()
    assert "hunter2" not in str(refused.value)
    right = broker.source(topic, **guarded | {"sasl_password": Secret.literal(kafka_broker.guarded["sasl.password"])})
    with running(gate_of(ledger), MemoryTable(ledger), right) as it:
        it.until(lambda: len(it.seen.written) == 5)


def test_a_header_that_is_missing_is_no_key(broker: Kafka) -> None:
    """Messages without the producer's UUID are not one message."""
    topic, ledger = broker.topic(), MemoryLedger()
    broker.send(topic, [(None, b'{"a": 1}', ()), (None, b'{"a": 2}', [("uuid", None)])])
    gate = gate_of(ledger, key=Header("uuid", headers="_headers"), rejected="output")
    with running(gate, MemoryTable(ledger), broker.source(topic)) as it:
        it.until(lambda: len(it.seen) == 2)
    assert [each.reason for each in it.seen.rejected] == ["no_key", "no_key"]


class Outage:
    """A sink that is away until it is back, and keeps what it was sent."""

    def __init__(self) -> None:
        self.back = threading.Event()
        self.asked = 0
        self.written: list[Any] = []

    def __reduce__(self) -> tuple[type[Outage], tuple[()]]:
        return Outage, ()

    def __call__(self, writes: Any) -> None:
        self.asked += 1
        if not self.back.is_set():
            raise Unavailable("the sink is away")
        self.written += [each.record for each in writes]


def test_a_sink_that_is_away_pauses_it_and_nothing_overtakes(kafka: Kafka) -> None:
    """It stays in the group without committing, keeps its batch, and goes on in order when the sink is back."""
    topic, ledger, outage = kafka.topic(), MemoryLedger(), Outage()
    kafka.send(topic, [(None, value, ()) for _, value, _ in orders(range(250))])
    lease, limit = timedelta(milliseconds=400), timedelta(milliseconds=300)
    gate = gate_of(ledger, on_replay="write", lease=lease, grace=timedelta(0))
    sink = CallableSink(outage, name="sink", timeout=limit)
    with running(gate, sink, kafka.source(topic, **kafka.impatient)) as it:
        it.until(lambda: it.metrics["repeats"] >= (2 if kafka.impatient else 1))
        assert kafka.committed(topic) == 0
        assert outage.written == []
        assert in_hand(it) <= gate.batch.rows
        outage.back.set()
        it.until(lambda: len(it.seen) == 250)
    assert [each["order_id"] for each in outage.written] == list(range(250))
    assert kafka.committed(topic) == 250
    assert it.metrics["put_back"] == 0
    assert it.metrics["commits_failed"] == 0


def test_a_stop_while_the_sink_is_away_commits_nothing(broker: Kafka) -> None:
    """What could not be written is read again by the next start."""
    topic, ledger, outage = broker.topic(), MemoryLedger(), Outage()
    broker.send(topic, orders(range(10)))
    gate = gate_of(ledger, on_replay="write", lease=timedelta(seconds=2), grace=timedelta(0))
    sink = CallableSink(outage, name="sink", timeout=timedelta(seconds=1))
    with running(gate, sink, broker.source(topic)) as it:
        it.until(lambda: it.metrics["repeats"] >= 1)
    assert broker.committed(topic) == 0
    outage.back.set()
    with running(gate, sink, broker.source(topic)) as again:
        again.until(lambda: len(again.seen) == 10)
    assert len(outage.written) == 10


def test_a_broker_that_dies_is_waited_for(broker: Kafka, kafka_broker: KafkaBroker) -> None:
    """Dead between finish and commit, it takes the offsets when it is back, and reading goes on behind them."""
    topic, ledger = broker.topic(), MemoryLedger()
    table = MemoryTable(ledger)
    broker.send(topic, orders(range(200)))
    seen: list[Results] = []

    def results(found: Results) -> None:
        seen.append(found)
        if len(seen) == 1:
            kafka_broker.kill()

    with running(gate_of(ledger), table, broker.source(topic), results=results) as it:
        it.until(lambda: not kafka_broker.running)
        kafka_broker.start()
        broker.send(topic, orders(range(200, 250)))
        it.until(lambda: sum(not each.replayed for found in seen for each in found.written) == 250)
    assert sorted(each.record["order_id"] for each in table.effects) == list(range(250))
    assert broker.committed(topic) == 250


def test_what_an_aborted_transaction_sent_never_was(broker: Kafka) -> None:
    """Messages of the transactions that were committed are written, and reading goes on behind the marks."""
    topic, ledger = broker.topic(), MemoryLedger()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, **QUIET})
    producer.init_transactions(SECONDS)
    for number, end in enumerate((producer.abort_transaction, producer.commit_transaction) * 2):
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"order_id": number}), partition=0)
        end(SECONDS)
    table = MemoryTable(ledger)
    with running(gate_of(ledger), table, broker.source(topic)) as it:
        it.until(lambda: len(it.seen) >= 2)
    assert [each.record["order_id"] for each in table.effects] == [1, 3]
    with running(gate_of(ledger), table, broker.source(topic)) as again:
        broker.send(topic, orders([9]))
        again.until(lambda: len(again.seen) >= 1)
    assert [each.record["order_id"] for each in again.seen.written] == [9]


def test_messages_older_than_the_retention_are_counted(broker: Kafka) -> None:
    """By the message's own timestamp: a replay of one would be new."""
    topic, ledger = broker.topic(), MemoryLedger(retention=timedelta(seconds=1))
    broker.send(topic, orders(range(3)))
    time.sleep(1.1)
    with running(gate_of(ledger), MemoryTable(ledger), broker.source(topic)) as it:
        it.until(lambda: len(it.seen) == 3)
    assert it.metrics["older_than_retention"] == 3


def test_a_batch_is_bounded_by_bytes(broker: Kafka) -> None:
    """Large messages make small batches, and one that is larger than a batch comes by itself."""
    topic, ledger, sizes = broker.topic(), MemoryLedger(), []
    large = [(None, json.dumps({"order_id": n, "text": "x" * 20_000}).encode(), ()) for n in range(30)]
    broker.send(topic, large)
    gate = gate_of(ledger, batch=Batch(bytes=100_000, record_bytes=50_000, linger=timedelta(milliseconds=100)))
    with running(
        gate, MemoryTable(ledger), broker.source(topic), results=lambda results: sizes.append(len(results))
    ) as it:
        it.until(lambda: sum(sizes) == 30)
    # Before the first messages nobody knows how large they are.
    assert max(sizes[1:], default=0) <= 5


def test_a_lease_too_long_for_the_group_is_refused(mock_cluster: Kafka) -> None:
    """All values are named, before anything is read."""
    gate = gate_of(on_replay="write", lease=timedelta(seconds=30), grace=timedelta(seconds=10))
    with pytest.raises(Misconfigured, match=r"3 x 30 s \+ 10 s = 100 s.*max.poll.interval.ms = 90 s"):
        OnceConsumer(gate, CallableSink(print, name="s"), mock_cluster.source("t", max_poll_interval_ms=90_000))
