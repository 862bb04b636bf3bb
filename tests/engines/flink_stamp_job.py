"""A job that stamps the lines of files, writes down each stamp as it is given, and dies on the way if it is told to.

Each run is a process of its own, so that all of it can be killed: client, workers and, with them, the mini cluster.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from oncesink.transforms.flink import stamp
from oncesink.transforms.keys import Stamped
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import MapFunction

from tests.engines.flink_world import mini_cluster

FILES, LANES, LINES = 2, 6, 2000
PAUSE_SECONDS = 0.005
AFTER_CHECKPOINT = 60
"""So many records are stamped between a checkpoint and the end of the process: a replay brings them again."""


def main(folder: str, *runs: tuple[int, bool]) -> None:
    """Run the job with each parallelism, one after the other; print how each process ended."""
    # PyFlink is imported once: no thread runs yet, nor does Java.
    fork = multiprocessing.get_context("fork")
    for parallelism, dies in runs:
        process = fork.Process(target=run, args=(Path(folder), parallelism), kwargs={"dies": dies})
        process.start()
        process.join()
        sys.stdout.write(f"{process.exitcode}\n")


def run(place: Path, parallelism: int, *, dies: bool) -> None:
    """Run the job from its newest checkpoint, if there is one, to its end or until it dies."""
    settings = {
        "execution.checkpointing.interval": "300 ms",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "python.fn-execution.bundle.time": "20",
    }
    if found := completed(place):
        settings["execution.state-recovery.path"] = found[-1].parent.as_uri()
    environment = mini_cluster(place, settings, parallelism=parallelism)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), (place / "in").as_uri()).build()
    lines = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    slow = lines.map(slowly if dies else str, Types.STRING()).uid("slow")
    stamped = stamp(slow, name="orders", lane=lane_of, lanes=LANES)
    stamped.map(WriteDown(place, dies=dies), Types.STRING()).uid("written down")
    environment.execute("stamps")


def completed(folder: Path) -> list[Path]:
    """Return the completed checkpoints, the newest last."""
    return sorted((folder / "checkpoints").glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)


def slowly(line: str) -> str:
    """Make the job live through a few checkpoints, on a crowded machine as well."""
    time.sleep(PAUSE_SECONDS)
    return line


def lane_of(line: str) -> int:
    """Return the lane of a line: all of its lines stand in one file, in one order."""
    return int(json.loads(line)["lane"])


class WriteDown(MapFunction):
    """Append each record and its stamp to a file, replays too; kill the process some records after a checkpoint."""

    def __init__(self, folder: Path, *, dies: bool) -> None:
        self._folder = folder
        self._dies = dies
        self._left = AFTER_CHECKPOINT

    def open(self, runtime_context: Any) -> None:
        self._file = os.open(self._folder / "stamps", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._seen: list[Path] = []

    def map(self, value: Stamped) -> str:
        os.write(self._file, f"{value.occurrence.decode()} {value.record}\n".encode())
        if self._dies and self._left == AFTER_CHECKPOINT and not self._newer():
            return ""
        self._left -= 1
        if self._dies and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def _newer(self) -> bool:
        """Tell whether a checkpoint holds all lanes: the second one since they are there, as the first began before."""
        newest = completed(self._folder)[-1:]
        if not self._seen:
            lines = (self._folder / "stamps").read_text().splitlines()
            if len({lane_of(line.split(" ", 1)[1]) for line in lines}) < LANES:
                return False
            self._seen = newest or [self._folder]
        self._seen += [each for each in newest if each not in self._seen]
        return len(self._seen) > 2
