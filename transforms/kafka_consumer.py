"""`OnceConsumer`: from Kafka into any sink, once, in plain Python."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

from ..connectors.clock import Clock
from ..connectors.contract import Sink
from ..connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from ..connectors.kafka_messages import KafkaMessage, Partition, Position, json_record
from ..connectors.kafka_session import KafkaSession
from ..connectors.kafka_source import KafkaSource
from .gate import Gate
from .kafka_hand import Hand
from .kafka_writer import Decode, PartitionWriter, decoded
from .metrics import Metrics
from .results import Results
from .retry import Attempts

log = logging.getLogger("oncesink")

_ASK_SECONDS = 0.2
"""How long it asks for messages at a time: a stop is noticed that late."""
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


class OnceConsumer:
    """Read topics as a member of a group and write each record once; commit what is finished, and only that.

    A context manager, used by one thread; `stop` may be called by any::

        with OnceConsumer(gate, sink, source) as consumer:
            consumer.run()

    A batch is full by `gate.batch`: rows, bytes, or the time since its first message. It is written, what was rejected
    is handed over, and then its offsets are committed. A store or a sink that is away does not end it: the same batch
    is written again, after pauses of up to 30 s in which the partitions are paused and the group sees it alive.
    Rejected or parked records that nobody takes (`"raise"`) end it, and so does whatever else does not pass.
    `decode` makes a record of a message; where it raises `Rejected`, the message is rejected with that reason.
    `results` is called with the outcomes of each batch before its offsets are committed: again for a batch that is
    read again. Where records go to the `"output"` of that name it has to be given.

    Delivery: as the sink's kind says (see `Gate`); what a crash may repeat is read again and recognised.
    Parallelism: one thread, as many members of the group as the topics have partitions. What is in hand when a
    partition goes to another member is let go unfinished and uncommitted, and the other member reads it.
    """

    def __init__(
        self,
        gate: Gate,
        sink: Sink,
        source: KafkaSource,
        *,
        decode: Decode = json_record,
        results: Callable[[Results], None] | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        _refuse_slow(gate, source)
        _refuse_unheard(gate, results)
        self._bounds = gate.batch
        self._retention = gate.ledger.retention if gate.ledger is not None else None
        self._decode = decode
        self._results = results
        self._stopping = threading.Event()
        self._hand = Hand()
        self._next = Hand()
        self._finished: dict[Partition, Position] = {}
        self._row_bytes = 1.0
        self._writer = PartitionWriter(gate, sink, metrics=metrics, clock=clock, attempts=attempts)
        try:
            self._session = KafkaSession(source, self._gone)
        except BaseException:
            self._writer.close()
            raise

    @property
    def metrics(self) -> Metrics:
        return self._writer.metrics

    @property
    def assigned(self) -> frozenset[Partition]:
        """Return the partitions that this member reads now."""
        return self._session.assigned

    def run(self) -> None:
        """Read and write until `stop`; then finish what is in hand and commit it.

        Raises `RecordsRejected`, `RecordsParked`, `Misconfigured`, and what a sink's own code raises.
        """
        while not self._stopping.is_set():
            self._gather()
            self._write()
        self._write()

    def stop(self) -> None:
        """Let `run` come to its end. From any thread, or a signal's handler."""
        self._stopping.set()

    def close(self) -> None:
        """Leave the group, uncommitted with what is in hand, and give every connection back. Safe to repeat."""
        try:
            self._session.close()
        finally:
            self._writer.close()

    def _gather(self) -> None:
        """Fill the hand, for as long as its first message may wait."""
        left, until = _ASK_SECONDS, None
        while left > 0 and (room := self._room()) > 0 and not self._stopping.is_set():
            self._take(self._session.gather(room, min(_ASK_SECONDS, left)), self._hand)
            if not self._hand.held:
                return
            until = until or time.monotonic() + self._bounds.linger.total_seconds()
            left = until - time.monotonic()

    def _room(self) -> int:
        """Return how many more messages fit, by rows, and by bytes as far as the last ones tell."""
        by_bytes = int((self._bounds.bytes - self._hand.size_bytes) / self._row_bytes)
        room = min(self._bounds.rows - len(self._hand), by_bytes)
        return room if self._hand.held else max(1, room)

    def _take(self, messages: list[KafkaMessage], hand: Hand) -> None:
        if not messages:
            return
        self._row_bytes = max(1.0, sum([each.size for each in messages]) / len(messages))
        hand.take(decoded(messages, self._decode))
        if self._retention is not None:
            oldest = (time.time() - self._retention.total_seconds()) * 1000
            old = sum([each.timestamp_millis is not None and each.timestamp_millis < oldest for each in messages])
            self.metrics.count("older_than_retention", old)

    def _write(self) -> None:
        """Write what is in hand, again until it is finished; while it is not, nothing else is read or committed."""
        pause = _FIRST_PAUSE_SECONDS
        while self._hand.held and (error := self._attempt()) is not None:
            if self._stopping.is_set():
                return log.warning("stopped, %d messages unfinished and uncommitted: %s", len(self._hand), error)
            log.warning("%d messages are held for %.1f s, then written again: %s", len(self._hand), pause, error)
            self._hold(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            self.metrics.count("repeats")
        self._session.resume()
        self._commit()
        self._hand, self._next = self._next, self._hand

    def _attempt(self) -> Exception | None:
        """Write the batch and take note of its offsets; return what will pass, if that came in between."""
        try:
            results = self._writer.write_held(self._hand.held)
        except (Unavailable, OutcomeUnknown) as error:
            return error
        if self._results is not None:
            self._results(results)
        self._finished.update(self._hand.finished())
        return None

    def _hold(self, seconds: float) -> None:
        """Wait, paused, as a live member of the group; what is given out all the same comes after the batch."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and self._hand.held and (left := until - time.monotonic()) > 0:
            self._session.pause()
            self._take(self._session.gather(1, min(_ASK_SECONDS, left)), self._next)

    def _commit(self) -> None:
        """Commit what is finished; what cannot be committed now goes with the next commit."""
        if not self._finished:
            return
        try:
            self._session.commit(self._finished)
        except Unavailable as error:
            self.metrics.count("commits_failed")
            log.warning("offsets are committed later: %s", error)
        else:
            self._finished.clear()

    def _gone(self, partitions: frozenset[Partition], lost: bool) -> None:  # noqa: FBT001 - a callback's form
        """Commit what is finished of partitions that go away, unless they are gone already; let go the rest."""
        finished = {each: self._finished.pop(each) for each in partitions if each in self._finished}
        if finished and not lost:
            try:
                self._session.commit(finished)
            except (Unavailable, Misconfigured) as error:
                log.warning("what is finished of %s will be read again: %s", ", ".join(map(str, finished)), error)
        self.metrics.count("put_back", self._hand.drop(partitions) + self._next.drop(partitions))
        self._writer.drop(partitions)

    def __enter__(self) -> OnceConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<OnceConsumer {self._writer!r} {self._session!r} in hand={len(self._hand)}>"


def _refuse_slow(gate: Gate, source: KafkaSource) -> None:
    longest = timedelta(seconds=3 * gate.lease_seconds + gate.grace_seconds)
    if longest >= source.max_poll:
        raise Misconfigured(
            f"a batch may take 3 x lease + grace = 3 x {gate.lease_seconds:g} s + {gate.grace_seconds:g} s ="
            f" {longest.total_seconds():g} s, but after max.poll.interval.ms = {source.max_poll.total_seconds():g} s"
            " the group gives its partitions to somebody else: shorten the lease, or raise max.poll.interval.ms"
        )


def _refuse_unheard(gate: Gate, results: object) -> None:
    unheard = [name for name in ("rejected", "parked") if getattr(gate, name) == "output"]
    if unheard and results is None:
        raise Misconfigured(
            f"{unheard[0]}='output' gives such records to results=, and there is none: their offsets would be"
            f" committed, and nobody would hear of them; give results=, or {unheard[0]}= a sink"
        )
