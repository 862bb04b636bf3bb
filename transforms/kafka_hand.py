"""What a consumer has in hand: messages that were read and are not finished, and offsets that are not committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..connectors.kafka_messages import KafkaMessage, Partition, Position


class Held(NamedTuple):
    """A message in hand, and the record that was made of it."""

    message: KafkaMessage
    record: Any


class Hand:
    """The next batch, in the order in which it was read."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.held)

    def take(self, held: Iterable[Held]) -> None:
        """Add what was read."""
        for each in held:
            self.held.append(each)
            self.size_bytes += each.message.size

    def drop(self, partitions: frozenset[Partition]) -> int:
        """Let go what somebody else reads from now on; return how many messages that were."""
        kept = [each for each in self.held if each.message.partition not in partitions]
        dropped, self.held = len(self.held) - len(kept), kept
        self.size_bytes = sum([each.message.size for each in kept])
        return dropped

    def finished(self) -> dict[Partition, Position]:
        """Empty the hand; return, for each partition in it, where reading goes on behind it."""
        held, self.held, self.size_bytes = self.held, [], 0
        return {
            each.partition: Position(each.offset + 1, each.leader_epoch) for each in (held.message for held in held)
        }
