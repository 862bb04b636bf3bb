"""Reconcile until no row is open, and note each page: what is killed by the benchmark.

python -m benchmarks.jobs.reconcile <settings as JSON>
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from oncesink.connectors import MySQLLedger, Secret
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import ALREADY, Answer, Write
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_literals import binaries, binary, text
from oncesink.connectors.mysql_server import MySQLServer
from oncesink.transforms import Batch, Fields, Gate, Reconciled, Reconciler, SourcePosition

VARIABLE = "ONCESINK_BENCHMARK_PASSWORD"
PLACE = "ONCESINK_BENCHMARK_MYSQL"
PASSWORD = Secret.env(VARIABLE)
LEASE = timedelta(seconds=3)

TARGET = """\
CREATE TABLE effects (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  digest BINARY(16) NOT NULL,
  content VARCHAR(200) NOT NULL,
  KEY digest (digest)
) ENGINE=InnoDB"""
"""Nothing of it is unique, so that a second write would show."""


def gate(url: str, page_rows: int) -> Gate:
    """Return the gate whose rows are open."""
    return Gate(
        scope="bench",
        key=Fields("order_id"),
        occurrence=SourcePosition("bench", "partition", "offset"),
        ledger=MySQLLedger(url, password=PASSWORD, retention=timedelta(days=7)),
        on_replay="probe",
        lease=LEASE,
        grace=timedelta(0),
        redrive="json",
        batch=Batch(rows=page_rows),
    )


@cache
def connection() -> MySQLConnection:
    """Return this process's connection to the target."""
    return MySQLConnection(MySQLServer(url=os.environ[PLACE], password=PASSWORD))


def insertion(rows: Sequence[tuple[bytes, dict[str, Any]]]) -> str:
    """Return the statement that writes effects."""
    values = ",".join(f"({binary(digest)},{text(json.dumps(record))})" for digest, record in rows)
    return f"INSERT INTO effects (digest, content) VALUES {values}"


def look_up(digests: Sequence[bytes]) -> set[bytes]:
    """Return those that are there."""
    found = connection().query(f"SELECT digest FROM effects WHERE digest IN ({binaries(digests)})")
    return {digest for (digest,) in found}


def send(writes: Sequence[Write]) -> None:
    """Write a batch, knowing nothing of keys."""
    connection().execute(insertion([(each.digest, each.record) for each in writes]))


def probe(writes: Sequence[Write]) -> Sequence[Answer | None]:
    """Tell which effects are there."""
    there = look_up([each.digest for each in writes])
    return [ALREADY if each.digest in there else None for each in writes]


SINK = CallableSink(send, name="effects", probe=probe, timeout=timedelta(seconds=2))


class Notes:
    """One line a page: when it began and ended, by a clock that all processes share, and what it came to."""

    def __init__(self, place: Path) -> None:
        self._file = place.open("a", buffering=1)
        self._seen = Reconciled()
        self._begin = time.monotonic()

    def begin(self) -> None:
        """Start the clock of the first page of a pass."""
        self._seen, self._begin = Reconciled(), time.monotonic()

    def page(self, so_far: Reconciled) -> None:
        """Note a page."""
        end = time.monotonic()
        names = ("listed", "there", "written", "elsewhere", "late_finishes", "in_doubt")
        more = {name: getattr(so_far, name) - getattr(self._seen, name) for name in names}
        self._file.write(json.dumps({"begin": self._begin, "end": end, **more}) + "\n")
        self._begin = end
        for name in names:
            setattr(self._seen, name, getattr(so_far, name))


def main(settings: dict[str, Any]) -> None:
    """Make passes until nothing is open, waiting for the leases of those that were killed."""
    notes = Notes(Path(settings["notes"]))
    with Reconciler(gate(os.environ[PLACE], settings["page_rows"]), SINK) as reconciler:
        Path(settings["ready"]).touch()
        while not Path(settings["go"]).exists():
            time.sleep(0.01)
        while True:
            notes.begin()
            if reconciler.run(notes.page).listed:
                continue
            if connection().query("SELECT id FROM oncesink_ledger WHERE state=0 LIMIT 1") == ():
                return
            time.sleep(0.1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
