"""What a membership filter costs in Flink's keyed state: bytes written for a new key, seconds to restore a shard.

The function runs as in a job, over state in memory that counts what is written. The last line of stdout is a JSON
object with both figures.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import Any, NamedTuple

from oncesink.connectors.memory import MemoryLedger, forget_all
from oncesink.connectors.memory_sinks import MemoryTable
from oncesink.transforms import Batch, Bloom, Fields, Gate, SourcePosition
from oncesink.transforms.flink_function import GateFunction
from oncesink.transforms.flink_outputs import Outputs
from oncesink.transforms.flink_state import entry_of
from oncesink.transforms.membership import FilterState, Keys

from tests.engines.flink_harness import KeyedHarness

BATCH = 1000
SHARD = 7
LEDGER = MemoryLedger("flink state")
BUFFER, SNAPSHOT, LOG = "oncesink-waiting", "oncesink-filter", "oncesink-filter-log"


def main(cycle_keys: int, shard_keys: int) -> None:
    """Measure, and print both figures."""
    figures = {"bytes": bytes_a_new_key(cycle_keys), "seconds": restore_seconds(shard_keys)}
    sys.stdout.write(f"{json.dumps(figures)}\n")


def bytes_a_new_key(capacity: int) -> float:
    """Return how many bytes of state a new key costs beside the buffer, over whole cycles of compaction."""
    harness = start(capacity)
    known = compacted = 0
    cost = 0.0
    for begin in range(0, capacity, BATCH):
        fill(harness, range(begin, begin + BATCH))
        spent = harness.written_bytes
        # Beyond its capacity a filter takes new keys for known ones: nothing is written for those.
        if spent.get(SNAPSHOT, 0) > compacted:
            compacted, known = spent[SNAPSHOT], begin + BATCH
            cost = sum(count for name, count in spent.items() if name != BUFFER) / known
    if not known:
        raise AssertionError(f"no cycle of compaction was completed: {harness.written_bytes}")
    return cost


def restore_seconds(keys: int) -> float:
    """Return how long the first batch takes after a restore of a shard that holds so many keys."""
    harness = start(keys)
    harness.key = SHARD
    snapshot, log = stored(keys)
    harness.get_state(Named(SNAPSHOT)).update(snapshot)
    harness.get_list_state(Named(LOG)).update(log)
    begin = time.perf_counter()
    fill(harness, range(BATCH))
    taken = time.perf_counter() - begin
    held = harness.function._session.metrics["filter_positive"] + harness.function._session.metrics["filter_negative"]  # noqa: SLF001
    if held != BATCH:
        raise AssertionError(f"the filter was asked about {held} keys of {BATCH}")
    return taken


def stored(keys: int) -> tuple[bytes, list[bytes]]:
    """Return what the state of a filter with so many keys holds: a snapshot, and a log of what came later."""
    state = FilterState(bloom(keys))
    snapshot, log = state.compact(), list[bytes]()
    for begin in range(0, keys, BATCH):
        log.append(state.record(Keys([number.to_bytes(16, "big") for number in range(begin, begin + BATCH)])))
        if state.due:
            snapshot, log = state.compact(), []
    return snapshot, log


def start(capacity: int) -> KeyedHarness:
    """Start a subtask with an empty ledger."""
    forget_all()
    gate = Gate(
        scope="orders",
        key=Fields("id"),
        occurrence=SourcePosition("file", "pos"),
        ledger=LEDGER,
        membership=bloom(capacity),
        batch=Batch(rows=BATCH, linger=timedelta(minutes=1)),
        shards=1,
    )
    return KeyedHarness(GateFunction(gate, MemoryTable(LEDGER), Outputs(filters=False)))


def bloom(capacity: int) -> Bloom:
    """Return the filter of one shard."""
    return Bloom(capacity=capacity, error_rate=0.001)


def fill(harness: KeyedHarness, keys: range) -> None:
    """Bring these keys."""
    for number in keys:
        record: dict[str, Any] = {"id": number, "pos": number}
        harness.process(entry_of(SHARD, record))


class Named(NamedTuple):
    """What a state is asked for by."""

    name: str
