"""The suite on functions as sinks, in each of their forms."""

from collections.abc import Sequence
from typing import Any

import pytest
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import ALREADY, WRITTEN, Answer, Outcome, Sink, SinkKind, Write
from oncesink.connectors.errors import Rejected

from tests.contract.outside_contract import BAD, OutsideContract

APPLIED: dict[str, Any] = {}
"""What stands for the other side: by idempotency key."""

HISTORY: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_applied() -> None:
    """Begin with nothing on the other side."""
    APPLIED.clear()
    HISTORY.clear()


def send(record: Any, key: str) -> bytes | None:
    """Apply one record."""
    if record == BAD:
        raise Rejected("refused", "it is bad")
    APPLIED[key] = record
    HISTORY.append(record)
    return None


def send_unless_known(record: Any, key: str) -> Answer | None:
    """Apply one record that was not applied yet."""
    if key in APPLIED:
        return ALREADY
    send(record, key)
    return None


def send_batch(writes: Sequence[Write]) -> Sequence[Answer]:
    """Apply those that are good."""
    return [answer_to(each) for each in writes]


def answer_to(write: Write) -> Answer:
    """Apply one write, and answer with a value instead of an error."""
    if write.record == BAD:
        return Answer(Outcome.REJECTED, detail="it is bad")
    send(write.record, write.idempotency_key)
    return WRITTEN


def look(writes: Sequence[Write]) -> Sequence[Answer | None]:
    """Tell what was applied."""
    return [WRITTEN if each.idempotency_key in APPLIED else None for each in writes]


class TestCallableSink(OutsideContract):
    """A function of a batch."""

    def make(self) -> Sink:
        """Return the recipe."""
        return CallableSink(send_batch, name="suite", probe=look)

    def effects(self) -> list[Any]:
        """Return what reached the other side."""
        return HISTORY


class TestCallableSinkOfOneRecord(TestCallableSink):
    """A function of one record, which cannot be asked afterwards."""

    def make(self) -> Sink:
        """Return the recipe."""
        return CallableSink.each(send, name="suite")


class TestCallableSinkThatDropsByKey(TestCallableSink):
    """A function whose other side recognises the idempotency key."""

    kind = SinkKind.DROPS_BY_KEY

    def make(self) -> Sink:
        """Return the recipe."""
        return CallableSink.each(send_unless_known, name="suite", drops_by_key=True, probe=look)
