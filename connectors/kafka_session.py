"""A live consumer of Kafka: messages, offsets, and what the group takes away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from .errors import Misconfigured, OnceSinkError
from .kafka_errors import mapped, not_let_in
from .kafka_messages import KafkaMessage, Partition, Position
from .kafka_producer import driver
from .kafka_source import KafkaSource

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

log = logging.getLogger("oncesink")

_NO_EPOCH = -1

Gone = Callable[[frozenset[Partition], bool], None]
"""Called while messages are asked for, with partitions that go away, and whether they may still be committed."""


class KafkaSession:
    """One member of a group. Belongs to one thread, but for what the client does by itself.

    Raises `Misconfigured` for settings that the client refuses.
    """

    def __init__(self, source: KafkaSource, gone: Gone) -> None:
        self._gone = gone
        self._assigned: set[Partition] = set()
        self._paused: set[Partition] = set()
        self._found: list[KafkaMessage] = []
        self._fatal: OnceSinkError | None = None
        self._let_in = False
        self._closed = False
        self._client = _new_consumer(source, self._on_error)
        self._client.subscribe(
            list(source.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    @property
    def assigned(self) -> frozenset[Partition]:
        return frozenset(self._assigned)

    def gather(self, rows: int, seconds: float) -> list[KafkaMessage]:
        """Wait for a message; return it with those that are there already, up to so many.

        A member that does not ask is taken for dead. Calls `gone` on the way, and returns nothing of what that named.
        Raises `Misconfigured` where it cannot go on.
        """
        # One at a time, not `consume`: in one call that could give out messages, tell that their partition is taken
        # away and given back, and begin it again at the committed offset. Those first ones would be committed before
        # what lies between.
        until = time.monotonic() + seconds
        while len(self._found) < rows:
            message = self._client.poll(0 if self._found else max(0.0, until - time.monotonic()))
            if message is not None:
                self._take(message)
            # The client tells of some errors by a call on the way, not by a message.
            if self._fatal is not None:
                raise self._fatal
            if message is None:
                break
        found, self._found = self._found, []
        return found

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Commit and wait for the answer. Raises `Unavailable` where that may be tried again, else `Misconfigured`."""
        offsets = [_offset(partition, position) for partition, position in positions.items()]
        try:
            answers = self._client.commit(offsets=offsets, asynchronous=False)
        except driver().KafkaException as error:
            raise mapped(error.args[0], "commit") from error
        for each in answers:
            if each.error is not None:
                raise mapped(each.error, f"commit of {each.topic}/{each.partition}")

    def pause(self) -> None:
        """Fetch nothing more until `resume`; what is assigned later has to be paused again."""
        new = self._assigned - self._paused
        if new:
            self._client.pause(_bare(new))
            self._paused |= new

    def resume(self) -> None:
        """Fetch again, from behind what was given out last."""
        paused, self._paused = self._paused, set()
        if paused:
            self._client.resume(_bare(paused))

    def close(self) -> None:
        """Leave the group; `gone` is called for what was assigned. Safe to repeat."""
        if not self._closed:
            self._closed = True
            self._client.close()

    def _take(self, message: Message[bytes, bytes]) -> None:
        error = message.error()
        if error is not None:
            return self._judge(error)
        topic, number, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert number is not None
        assert offset is not None
        kind, millis = message.timestamp()
        headers: Any = message.headers() or []
        taken = KafkaMessage(
            Partition(topic, number),
            offset,
            millis if kind else None,
            message.key(),
            message.value(),
            headers,
            message.leader_epoch(),
        )
        self._found.append(taken)

    def _judge(self, error: KafkaError) -> None:
        if error.name() == "_PARTITION_EOF":
            return
        problem = (None if self._let_in else not_let_in(error)) or mapped(error, "read")
        if isinstance(problem, Misconfigured):
            self._fatal = problem
        log.warning("%s", problem)

    def _on_error(self, error: KafkaError) -> None:
        self._judge(error)

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._let_in = True
        self._assigned |= _plain(partitions)
        log.info("assigned: %s", _shown(_plain(partitions)))

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._take_away(_plain(partitions), lost=False)

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._take_away(_plain(partitions), lost=True)

    def _take_away(self, partitions: frozenset[Partition], *, lost: bool) -> None:
        log.info("%s: %s", "lost" if lost else "revoked", _shown(partitions))
        # The client remembers that a partition is paused: it would stay so when it comes back.
        if paused := self._paused & partitions:
            self._client.resume(_bare(paused))
        self._assigned -= partitions
        self._paused -= partitions
        self._found = [each for each in self._found if each.partition not in partitions]
        self._gone(partitions, lost)

    def __repr__(self) -> str:
        paused = f" paused={len(self._paused)}" if self._paused else ""
        return f"<KafkaSession assigned={_shown(self.assigned)}{paused}>"


def _new_consumer(source: KafkaSource, on_error: Callable[[KafkaError], None]) -> Consumer:
    kafka = driver()
    settings = source.resolved(error_cb=on_error)
    try:
        return cast("Consumer", kafka.Consumer(settings, logger=log))
    except kafka.KafkaException as error:
        # Not `from error`: what the client says may repeat a value, and a value may be a password.
        raise Misconfigured(f"Kafka's client refuses its settings: {source.masked(error.args[0].str())}") from None


def _offset(partition: Partition, position: Position) -> TopicPartition:
    epoch = _NO_EPOCH if position.leader_epoch is None else position.leader_epoch
    return cast("TopicPartition", driver().TopicPartition(*partition, position.offset, leader_epoch=epoch))


def _bare(partitions: set[Partition]) -> list[TopicPartition]:
    return [driver().TopicPartition(*each) for each in partitions]


def _plain(partitions: Sequence[TopicPartition]) -> frozenset[Partition]:
    return frozenset(Partition(each.topic, each.partition) for each in partitions)


def _shown(partitions: frozenset[Partition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "nothing"
