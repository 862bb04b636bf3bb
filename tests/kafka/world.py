"""What tests of the consumer share: a cluster, producers, and a consumer that runs in a thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import stamina
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from oncesink.connectors import KafkaSource, MemoryLedger, Sink
from oncesink.transforms import Batch, Counts, Fields, Gate, KafkaPosition, OnceConsumer, Results
from oncesink.transforms.retry import Immediately

PARTITIONS = 4
SECONDS = 30.0
QUIET = {"log_level": 0}

_numbers = count(1)

Message = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | str | None]]]
"""Key, value and headers."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """A cluster, real or not, by its address."""

    bootstrap: str
    make_topic: Callable[[str], object]
    impatient: Mapping[str, Any] = field(default_factory=dict)
    """Settings under which it throws out a member that does not ask for messages as soon as it can."""

    def topic(self) -> str:
        """Return a new topic of four partitions."""
        name = f"orders-{next(_numbers)}"
        self.make_topic(name)
        return name

    def send(self, topic: str, messages: Sequence[Message], **settings: Any) -> None:
        """Produce and wait until all of it is acknowledged; without a key in partition 0."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer({"bootstrap.servers": self.bootstrap, **QUIET, **named})
        for key, value, headers in messages:
            where = {"partition": 0} if key is None else {"key": key}
            producer.produce(topic, value, headers=list(headers), **where)
        assert producer.flush(SECONDS) == 0

    def source(self, topic: str, **settings: Any) -> KafkaSource:
        """Return a source that begins at the beginning, in a group of the topic's name."""
        group = {"group.id": topic, "auto.offset.reset": "earliest", "bootstrap.servers": self.bootstrap}
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return KafkaSource(topic, settings={**group, **named})

    def committed(self, topic: str) -> int:
        """Return how many messages of all partitions are committed."""
        wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        with member(self.bootstrap, topic) as consumer:
            # The first group of a broker waits until there is a place for offsets.
            for attempt in stamina.retry_context(on=KafkaException, timeout=SECONDS, attempts=None, wait_max=0.2):
                with attempt:
                    found = consumer.committed(wanted, timeout=SECONDS)
        return sum(max(each.offset, 0) for each in found)


@contextmanager
def member(bootstrap: str, group: str) -> Iterator[Consumer]:
    """Give a client that may ask about a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
    try:
        yield consumer
    finally:
        consumer.close()


def orders(numbers: Sequence[int]) -> list[Message]:
    """Return an order a number, as JSON, keyed by it."""
    return [(str(n).encode(), json.dumps({"order_id": n, "amount": n % 7}).encode(), ()) for n in numbers]


def gate_of(ledger: MemoryLedger | None = None, **options: Any) -> Gate:
    """Return a gate for orders with small, quick batches."""
    defaults: dict[str, Any] = {
        "scope": "orders",
        "key": Fields("order_id"),
        "occurrence": KafkaPosition("cluster/1"),
        "ledger": ledger or MemoryLedger(),
        "batch": Batch(rows=100, linger=timedelta(milliseconds=100)),
    }
    return Gate(**{**defaults, **options})


class Running:
    """A consumer that runs in a thread of its own until it is stopped; it keeps what came out."""

    def __init__(self, gate: Gate, sink: Sink, source: KafkaSource, **options: Any) -> None:
        self.seen = Results()
        self.metrics = Counts()
        self.assigned: frozenset[Any] = frozenset()
        self._error: BaseException | None = None
        self._opened = threading.Event()
        self.consumer: OnceConsumer | None = None
        defaults = {"metrics": self.metrics, "results": self._keep, "attempts": Immediately(1)}
        self._thread = threading.Thread(target=self._run, args=(gate, sink, source, {**defaults, **options}))
        self._thread.start()

    def until(self, reached: Callable[[], Any], seconds: float = SECONDS) -> None:
        """Wait until something holds. Raises what ended the consumer meanwhile."""
        deadline = time.monotonic() + seconds
        while not reached():
            if self._error is not None:
                raise self._error
            assert time.monotonic() < deadline, f"not within {seconds} s: {self.seen!r}, {self.metrics!r}"
            time.sleep(0.02)

    def ended_by(self) -> BaseException:
        """Wait until it has ended by itself; return why."""
        self._thread.join(SECONDS)
        assert self._error is not None
        return self._error

    def stop(self) -> None:
        """Stop it and wait for its end. Raises what ended it."""
        assert self._opened.wait(SECONDS)
        if self.consumer is not None:
            self.consumer.stop()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self, gate: Gate, sink: Sink, source: KafkaSource, options: dict[str, Any]) -> None:
        try:
            with OnceConsumer(gate, sink, source, **options) as self.consumer:
                self._opened.set()
                self.consumer.run()
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            self._error = error
        finally:
            self._opened.set()

    def _keep(self, results: Results) -> None:
        for each in (results.written, results.duplicates, results.rejected, results.parked):
            self.seen.collect(each)


@contextmanager
def running(gate: Gate, sink: Sink, source: KafkaSource, **options: Any) -> Iterator[Running]:
    """Run a consumer for as long as the block, then let it finish. An error of the block goes first."""
    it = Running(gate, sink, source, **options)
    try:
        yield it
    except BaseException:
        if it.consumer is not None:
            it.consumer.stop()
        it._thread.join(SECONDS)
        raise
    it.stop()


def in_hand(it: Running) -> int:
    """Return how many messages a member holds unfinished."""
    return 0 if it.consumer is None else len(it.consumer._hand) + len(it.consumer._next)
