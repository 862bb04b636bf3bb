"""Gates whose filter is far too small for their stream, and what an alarm says; the same for both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.memory_sinks import MemoryTable
from oncesink.transforms import Batch, Bitmap, Bloom, Fields, Gate, Generations, Rotation, SourcePosition
from oncesink.transforms.membership import Alarm

LEDGER = MemoryLedger("filters")
TABLE = MemoryTable(LEDGER)
PLANNED = Bloom(capacity=2000, error_rate=0.01)
STREAM = 10 * PLANNED.capacity
ALARMS: list[Alarm] = []
BASE = 30_000


def alarmed(alarm: Alarm) -> None:
    """Take an alarm; workers of these tests are in the test's own process."""
    ALARMS.append(alarm)


GATE = Gate(
    scope="orders",
    key=Fields("id"),
    occurrence=SourcePosition("file", "pos"),
    ledger=LEDGER,
    batch=Batch(rows=500),
    shards=1,
    rejected="output",
)
SATURATED = Generations(PLANNED, Rotation(on_alarm=alarmed))
NUMBERED = Bitmap(id="id", base=BASE, capacity=1000)


def orders(numbers: Sequence[int], first_pos: int = 0) -> list[dict[str, Any]]:
    """Return records of these ids, each at a place of its own."""
    return [{"id": number, "pos": first_pos + place} for place, number in enumerate(numbers)]


def check_alarms(most_windows: int = 8) -> None:
    """Check that each generation that was full gave one alarm, in time."""
    assert [alarm.number for alarm in ALARMS] == list(range(len(ALARMS)))
    assert 4 <= len(ALARMS) <= most_windows
    assert all(0.8 <= alarm.occupancy.used <= 0.85 for alarm in ALARMS)
