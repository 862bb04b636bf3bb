"""Parts of jobs that tests run: their input, and a crash in the middle of it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oncesink.connectors.contract import Write
from oncesink.transforms.flink_sink import RichSinkFunction
from pyflink.common.serialization import Encoder
from pyflink.datastream.connectors.file_system import FileSink

RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "execution.checkpointing.interval": "300 ms",
}
"""Settings of a job that goes on after a crash."""

PAUSE_SECONDS = 0.002
"""Between two records, so that a job of some thousand records lives through a few checkpoints."""


def write_lines(path: Path, *, records: int, resent: int, bad: int = 0) -> None:
    """Write orders as JSON lines: `records`, of which the last `resent` bring the first ids again; then bad ones."""
    distinct = records - resent
    lines = [
        json.dumps({"id": pos % distinct, "pos": pos, "text": f"order {pos % distinct}"}) for pos in range(records)
    ]
    path.write_text("\n".join(lines + ["{}"] * bad) + "\n", encoding="utf-8")


def files(folder: Path) -> FileSink:
    """Return Flink's own two-phase file sink."""
    return FileSink.for_row_format(folder.as_uri(), Encoder.simple_string_encoder()).build()


def committed_lines(folder: Path) -> list[str]:
    """Return the lines of the files that Flink's file sink has committed."""
    files = [path for path in folder.rglob("part-*") if ".inprogress." not in path.name]
    return [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def create_table(path: Path) -> None:
    """Create an orders table without any key on the business key, so that a second write shows."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (n INTEGER PRIMARY KEY, id INTEGER, pos INTEGER, text TEXT)")
    connection.commit()
    connection.close()


def table_ids(path: Path) -> list[int]:
    """Return the ids in the orders table."""
    connection = sqlite3.connect(path)
    found = [row[0] for row in connection.execute("SELECT id FROM orders")]
    connection.close()
    return found


class CrashOnce:
    """Pass records slowly; raise once, at a record, as soon as a checkpoint was completed."""

    def __init__(self, folder: Path, *, at: int) -> None:
        self._folder = folder
        self._at = at

    def __call__(self, line: str) -> str:
        time.sleep(PAUSE_SECONDS)
        if f'"pos": {self._at}' in line or self._due(line):
            self._crash()
        return line

    def _due(self, line: str) -> bool:
        return line.startswith('{"id"') and json.loads(line)["pos"] > self._at

    def _crash(self) -> None:
        marker = self._folder / "crashed"
        if not marker.exists() and any((self._folder / "checkpoints").glob("*/chk-*/_metadata")):
            marker.touch()
            raise RuntimeError("this worker dies on purpose")


class Appending(RichSinkFunction):
    """A sink that appends to a file: each record and each call of its life cycle is a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, context: Any) -> None:
        self._file = self._path.open("a", encoding="utf-8")
        self._file.write("open\n")

    def invoke(self, value: Any, write: Write) -> None:
        self._file.write(f"{len(write.digest)} {json.loads(value)['id']}\n")
        self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            self._file.write("close\n")
            self._file.close()


def lane_of(line: str) -> int:
    """Return a lane of four, by an order's id."""
    return int(json.loads(line)["id"]) % 4


def tell(outcome: Any) -> str:
    """Return an outcome as a line: its kind, whether it is replayed, and the order's id."""
    record = json.loads(outcome.record) if outcome.record != "{}" else {"id": -1}
    return f"{type(outcome).__name__} {getattr(outcome, 'replayed', False)} {record['id']}"


def split(lines: list[str]) -> Iterator[list[str]]:
    """Return the words of lines."""
    return (line.split() for line in lines)
