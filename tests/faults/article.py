"""The gate that an article about UUID + offset keys in Redis prints, in Python, and a world for it to change.

`GET`, return if PROCESSED, `SET NX EX 30` as a lock, process, `SET PROCESSED EX 3600`, and in the end a `DEL` of
another key. A record whose call returns counts as consumed, and its offset is committed.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oncesink.connectors.faults import Crash

LOCK_SECONDS, PROCESSED_SECONDS = 30, 3600
Redis = Any


class Message(NamedTuple):
    """A delivery of an order: what a Kafka client gives."""

    order: str
    partition: int = 0
    offset: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class ArticleGate:
    """The article's code. `key` makes what stands behind `idemp:`, `process` is the business."""

    redis: Redis
    process: Callable[[Message], object]
    key: Callable[[Message], str]
    released: Callable[[str], str] = "{}:LOCK".format

    def __call__(self, message: Message) -> None:
        key = f"idemp:{self.key(message)}"
        if self.redis.get(key) == b"PROCESSED":
            return
        if self.redis.set(key, "LOCK", nx=True, ex=LOCK_SECONDS):
            try:
                self.process(message)
                self.redis.set(key, "PROCESSED", ex=PROCESSED_SECONDS)
            finally:
                self.redis.delete(self.released(key))


def random_uuid(message: Message) -> str:
    """Make the key as printed: a UUID of the consumer's own, and the offset."""
    return f"{uuid.uuid4()}_{message.offset}"


def by_order(message: Message) -> str:
    """Make the key from the message, so that a redelivery finds it: the least repair."""
    return message.order


@dataclass
class World:
    """What the messages change: a list of orders, in which a process may die before or after it wrote."""

    done: list[str] = field(default_factory=list)
    dies: list[str] = field(default_factory=list)

    def process(self, message: Message) -> None:
        """Write, unless the process dies first."""
        how = self.dies.pop(0) if self.dies else ""
        if how == "before":
            raise Crash
        self.done.append(message.order)
        if how == "after":
            raise Crash

    def lost(self, *messages: Message) -> int:
        return len({message.order for message in messages} - set(self.done))

    @property
    def twice(self) -> int:
        return sum(times - 1 for times in Counter(self.done).values())


def consume(gate: Callable[[Message], None], *messages: Message) -> None:
    """Deliver; a message in which the process dies is not consumed."""
    with suppress(Crash):
        for message in messages:
            gate(message)


def let_pass(redis: Redis, seconds: float) -> None:
    """Let time pass for the keys that the article's code expires."""
    for key in redis.scan_iter("idemp:*"):
        left = redis.pttl(key) - round(seconds * 1000)
        redis.pexpire(key, left) if left > 0 else redis.delete(key)
