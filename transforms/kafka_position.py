"""What a message of Kafka is: where it stood, and the header by which its producer names it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..connectors.kafka_messages import DELIVERY, POSITION
from .keys import SourcePosition

UUID_HEADER = "uuid"

Headers = list[tuple[str, bytes | str | None]]


@dataclass(frozen=True, slots=True, init=False)
class KafkaPosition(SourcePosition):
    """The occurrence of a message that `OnceConsumer` read: topic, partition and offset, under a source label.

    The label says from which cluster, and which incarnation of the topic: `KafkaPosition("orders@eu-1/3")`. Raise it
    when the topic is made anew, or when offsets begin again for another reason. What a producer's second send changes
    (timestamp, key, headers) is no part of the content that tells a second send from a conflict.
    """

    def __init__(self, source: str) -> None:
        SourcePosition.__init__(self, source, *POSITION)

    @property
    def description(self) -> str:
        return "KafkaPosition()"

    @property
    def reads(self) -> frozenset[str]:
        return DELIVERY


def uuid_header(
    headers: Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None] = (),
    *,
    name: str = UUID_HEADER,
) -> Headers:
    """Return a message's headers with a UUID among them, for `Header("uuid", headers="_headers")` to read as the key.

    The producer calls it once for each effect, and sends the same headers when it sends again: a header of that name
    that is there already stays::

        headers = uuid_header()
        producer.produce("orders", value, headers=headers)  # and the same again after a time-out
    """
    found = list(headers.items() if isinstance(headers, Mapping) else headers)
    if any(each == name and value for each, value in found):
        return found
    return [*found, (name, str(uuid.uuid4()).encode())]
