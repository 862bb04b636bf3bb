"""Be killed by `test_killed_consumer.py` at a chosen point of a chosen batch: consume orders into a log, once.

python killed_consumer.py <settings as JSON>
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from oncesink.connectors import CallableSink, KafkaSource, MySQLLedger, Secret
from oncesink.connectors.contract import ALREADY, Answer, Write
from oncesink.pipelines.stop_on_signals import stop_on_signals
from oncesink.transforms import Batch, Bloom, Fields, Gate, KafkaPosition, OnceConsumer, Results

SETTINGS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
BATCHES = {point: count(1) for point in ("before write", "after write", "before commit")}


def die_here(point: str) -> None:
    """Die as by a power cut, if this is where."""
    if next(BATCHES[point]) == SETTINGS["batch"] and point == SETTINGS["die"]:
        os.kill(os.getpid(), signal.SIGKILL)


def append(writes: Sequence[Write]) -> None:
    """Write as a sink would that knows nothing of keys."""
    die_here("before write")
    with Path(SETTINGS["log"]).open("a") as log:
        log.writelines(f"{each.record['order_id']} {each.idempotency_key}\n" for each in writes)
    die_here("after write")


def look(writes: Sequence[Write]) -> Sequence[Answer | None]:
    """Tell which keys stand in the log."""
    path = Path(SETTINGS["log"])
    there = {line.split()[1] for line in path.read_text().splitlines()} if path.exists() else set()
    return [ALREADY if each.idempotency_key in there else None for each in writes]


def finished(results: Results) -> None:
    """Stand between finish and commit."""
    die_here("before commit")


def main() -> None:
    """Consume until a signal comes."""
    ledger = MySQLLedger(SETTINGS["mysql"], password=Secret.env("KILL_TEST_PASSWORD"), retention=timedelta(days=7))
    gate = Gate(
        scope="killed",
        key=Fields("order_id"),
        occurrence=KafkaPosition("cluster/1"),
        ledger=ledger,
        membership=Bloom(capacity=10_000, error_rate=0.01),
        on_replay="probe",
        lease=timedelta(seconds=1),
        grace=timedelta(milliseconds=100),
        batch=Batch(rows=50, linger=timedelta(milliseconds=200)),
    )
    sink = CallableSink(append, name="log", probe=look, timeout=timedelta(milliseconds=400))
    source = KafkaSource(SETTINGS["topic"], settings=SETTINGS["kafka"])
    consumer = OnceConsumer(gate, sink, source, results=finished)
    with consumer, stop_on_signals(consumer.stop):
        consumer.run()


if __name__ == "__main__":
    main()
