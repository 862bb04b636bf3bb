"""A message of Kafka as a record: what it carries, where it stood, and how its value is read.

| field | holds |
|---|---|
| `_topic`, `_partition`, `_offset` | where it stood |
| `_timestamp` | milliseconds since 1970, None where the broker keeps none |
| `_key` | bytes or None |
| `_headers` | (name, bytes) pairs, in order |
| `_value` | the bytes; `json_record` has the fields of the JSON object in its place |
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .errors import Rejected
from .rows import decode_json

HEADERS = "_headers"
POSITION = ("_topic", "_partition", "_offset")
DELIVERY = frozenset({*POSITION, "_timestamp", "_key", HEADERS})
"""Fields that may differ between two sends of one thing."""


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Position(NamedTuple):
    """Where reading goes on: the next offset, and the leader's epoch of the message before it, if it is known."""

    offset: int
    leader_epoch: int | None = None


class KafkaMessage(NamedTuple):
    """What a consumer was given, without the client that gave it."""

    partition: Partition
    offset: int
    timestamp_millis: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    leader_epoch: int | None = None

    @property
    def size(self) -> int:
        """Return how many bytes key and value take."""
        return len(self.key or b"") + len(self.value or b"")


def raw_record(message: KafkaMessage) -> dict[str, Any]:
    """Return the message as it came, its value as bytes."""
    return {"_value": message.value, **_delivery(message)}


def json_record(message: KafkaMessage) -> dict[str, Any]:
    """Return the fields of the JSON object in the value, and those of the delivery, which no payload can forge.

    Raises `Rejected`: `tombstone` (no value), `not_unicode`, `not_json`, or `wrong_type` for another JSON value.
    """
    if message.value is None:
        raise Rejected("tombstone", "the message has no value: its key was deleted")
    try:
        text = message.value.decode()
    except UnicodeDecodeError as error:
        raise Rejected("not_unicode", f"the value is not UTF-8: {error.reason} at byte {error.start}") from error
    return {**decode_json(text), **_delivery(message)}


def _delivery(message: KafkaMessage) -> dict[str, Any]:
    partition = message.partition
    return {
        "_topic": partition.topic,
        "_partition": partition.number,
        "_offset": message.offset,
        "_timestamp": message.timestamp_millis,
        "_key": message.key,
        HEADERS: message.headers,
    }
