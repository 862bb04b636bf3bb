"""Be killed: read deliveries from the last position that was noted, and write them once.

python -m tests.fire.writer <settings as JSON>
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
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
from oncesink.connectors.contract import ALREADY, WRITTEN, Answer, Ledger, Sink, Write
from oncesink.connectors.errors import Unavailable
from oncesink.transforms import Bloom, Counts, Fields, Gate, OnceWriter, SourcePosition

from tests.fire.lines import amount_of, order_of

NOTED_EVERY = 3
"""Batches between two notes of the position: a restart goes back to an older one."""
WEEK = timedelta(days=7)
PASSWORD_ENV = "ONCESINK_FIRE_PASSWORD"
SINK_TIMEOUT = timedelta(seconds=1)
LEASE = timedelta(seconds=3)
GRACE = timedelta(seconds=1)

SETTINGS: dict[str, Any] = {}
CONNECTIONS: list[socket.socket] = []


def ask(verb: str, values: Sequence[Any]) -> list[bool]:
    """Send one request to the log and wait for its answer."""
    if not CONNECTIONS:
        try:
            CONNECTIONS.append(socket.create_connection(("127.0.0.1", SETTINGS["log"]), timeout=1))
        except OSError as error:
            raise Unavailable(f"the log cannot be reached: {error}") from error
    try:
        CONNECTIONS[0].sendall(json.dumps([verb, values]).encode() + b"\n")
        return list(json.loads(CONNECTIONS[0].makefile("rb").readline()))
    except Exception:
        CONNECTIONS.pop().close()
        raise


def append(writes: Sequence[Write]) -> Sequence[Answer]:
    """Write as a sink would that is somewhere else."""
    values = [(each.idempotency_key, each.record["order"], each.record["amount"]) for each in writes]
    return [WRITTEN if new else ALREADY for new in ask("write", values)]


def look(writes: Sequence[Write]) -> Sequence[Answer | None]:
    """Tell which keys stand in the log."""
    return [ALREADY if there else None for there in ask("probe", [each.idempotency_key for each in writes])]


def stores() -> tuple[Ledger, Sink]:
    """Return the ledger and the sink that the settings ask for."""
    kind = SETTINGS["kind"]
    if kind == "sqlite":
        embedded = SQLiteLedger(SETTINGS["sqlite"], retention=WEEK)
        return embedded, SQLiteTable(embedded, "orders")
    if kind == "redis":
        return RedisLedger(SETTINGS["redis"], retention=WEEK), outside(drops=False)
    ledger = MySQLLedger(SETTINGS["mysql"], password=Secret.env(PASSWORD_ENV), retention=WEEK)
    if kind == "table":
        return ledger, MySQLTable(ledger, "orders")
    return ledger, outside(drops=kind == "drops")


def outside(*, drops: bool) -> Sink:
    """Return the sink that writes the log and can be asked."""
    return CallableSink(append, name="log", drops_by_key=drops, probe=look, timeout=SINK_TIMEOUT)


def gate_of(ledger: Ledger, sink: Sink) -> Gate:
    """Return the gate, with a lease where there is one."""
    leases: dict[str, Any] = {} if sink.kind.value == "transactional" else {"lease": LEASE, "grace": GRACE}
    if sink.kind.value == "external":
        leases["on_replay"] = "probe"
    cached = SETTINGS.get("redis") and SETTINGS["kind"] != "redis"
    return Gate(
        scope="fire",
        key=Fields("order"),
        occurrence=SourcePosition("lines", "line"),
        ledger=ledger,
        cache=RedisCache(SETTINGS["redis"], ttl=timedelta(hours=1)) if cached else None,
        membership=Bloom(capacity=4_000_000, error_rate=0.01),
        **leases,
    )


@contextmanager
def opened(counts: Counts) -> Iterator[Callable[[list[dict[str, Any]]], Sized]]:
    """Open the gate, or none where the settings ask for a plain writer."""
    if SETTINGS["kind"] == "plain":
        yield lambda records: ask("write", [("", each["order"], each["amount"]) for each in records])
        return
    ledger, sink = stores()
    with OnceWriter(gate_of(ledger, sink), sink, metrics=counts) as writer:
        yield writer.write


def main() -> None:
    """Go through this worker's lines from the last noted position."""
    SETTINGS.update(json.loads(sys.argv[1]))
    note, counts, rows = Path(SETTINGS["note"]), Counts(), SETTINGS["rows"]
    step, first, lines = SETTINGS["workers"], SETTINGS["worker"], SETTINGS["lines"]
    start = int(note.read_text()) if note.exists() else first
    with opened(counts) as write:
        for number, at in enumerate(range(start, lines, step * rows)):
            if number % NOTED_EVERY == 0:
                keep(note, str(at))
            mine = range(at, min(at + step * rows, lines), step)
            orders = [(line, order_of(line)) for line in mine]
            records = [{"order": order, "line": line, "amount": amount_of(order)} for line, order in orders]
            outcomes = write(records)
            if len(outcomes) != len(records):
                keep(note.with_suffix(".sum"), f"{len(records)} deliveries, {len(outcomes)} outcomes from line {at} on")
            if counts["waited"]:
                keep(note.with_suffix(".waited"), str(counts["waited"]))
    keep(note, str(lines))


def keep(path: Path, text: str) -> None:
    """Write a file that is there as a whole or not at all."""
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)  # noqa: PTH105 - the same, shorter


if __name__ == "__main__":
    main()
