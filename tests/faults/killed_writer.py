"""Be killed by `test_kill.py`: read deliveries from the last position that was noted, and write them once.

python killed_writer.py <settings as JSON>
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from oncesink.connectors import (
    CallableSink,
    MySQLLedger,
    MySQLTable,
    RedisCache,
    RedisLedger,
    Secret,
    SQLiteLedger,
    SQLiteTable,
)
from oncesink.connectors.contract import ALREADY, Answer, Ledger, Sink, Write
from oncesink.transforms import Bloom, Fields, Gate, OnceWriter, SourcePosition

ROWS = 100
NOTED_EVERY = 3
"""Batches between two notes of the position: a restart goes back to an older one."""

SETTINGS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def append(writes: Sequence[Write]) -> None:
    """Write as a sink would that knows nothing of keys: one line a record, each reaching the file by itself."""
    log = os.open(SETTINGS["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for each in writes:
        os.write(log, f"{each.record['order']} {each.idempotency_key or '-'}\n".encode())
    os.close(log)


def look(writes: Sequence[Write]) -> Sequence[Answer | None]:
    """Tell which keys stand in the log."""
    path = Path(SETTINGS["log"])
    there = {line.split()[1] for line in path.read_text().splitlines()} if path.exists() else set()
    return [ALREADY if each.idempotency_key in there else None for each in writes]


def stores() -> tuple[Ledger, Sink]:
    """Return the ledger and the sink that the settings ask for."""
    week = timedelta(days=7)
    if SETTINGS["kind"] == "sqlite":
        embedded = SQLiteLedger(SETTINGS["sqlite"], retention=week)
        return embedded, SQLiteTable(embedded, "orders")
    if SETTINGS["kind"] == "redis":
        return RedisLedger(SETTINGS["redis"], retention=week), outside()
    ledger = MySQLLedger(SETTINGS["mysql"], password=Secret.env("KILL_TEST_PASSWORD"), retention=week)
    return ledger, MySQLTable(ledger, "orders") if SETTINGS["kind"] == "table" else outside()


def outside() -> Sink:
    """Return the sink that writes the log and can be asked."""
    return CallableSink(append, name="log", probe=look, timeout=timedelta(milliseconds=400))


def main() -> None:
    """Write as the settings ask."""
    if SETTINGS["kind"] == "plain":
        return run(lambda some: append([Write(each, b"", None) for each in some]))
    ledger, sink = stores()
    external = sink.kind.value == "external"
    gate = Gate(
        scope="killed",
        key=Fields("order"),
        occurrence=SourcePosition("deliveries", "line"),
        ledger=ledger,
        cache=RedisCache(SETTINGS["redis"], ttl=timedelta(hours=1)) if SETTINGS.get("redis") else None,
        membership=Bloom(capacity=100_000, error_rate=0.01),
        on_replay="probe" if external else None,
        lease=timedelta(seconds=1) if external else None,
        grace=timedelta(milliseconds=100) if external else None,
    )
    with OnceWriter(gate, sink) as writer:
        run(writer.write)


def run(write: Callable[[list[dict[str, Any]]], object]) -> None:
    """Go through the deliveries from the last noted position."""
    note = Path(SETTINGS["note"])
    start = int(note.read_text()) if note.exists() else 0
    deliveries = [json.loads(line) for line in Path(SETTINGS["deliveries"]).read_text().splitlines()]
    for number, at in enumerate(range(start, len(deliveries), ROWS)):
        if number % NOTED_EVERY == 0:
            note.with_suffix(".new").write_text(str(at))
            note.with_suffix(".new").replace(note)
        write(deliveries[at : at + ROWS])


if __name__ == "__main__":
    main()
