"""The demo's pipeline on Flink: lines in, two tables out. A run goes on from the checkpoint of one that was killed."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from oncesink.pipelines.demo_job import REPORT_ROWS, Job, leave_outcomes, report
from oncesink.pipelines.demo_kill import DyingTable
from oncesink.pipelines.demo_tables import COLUMNS, PLAIN
from oncesink.transforms.flink import OnceStreams, write_once
from oncesink.transforms.results import Duplicate, Parked, Refused, Written
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.common.serialization import Encoder
from pyflink.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

CHECKPOINT_INTERVAL = "2 s"
SHARDS = 4
"""Batches gather shard by shard, and there is one subtask: so they fill up before they have lingered too long."""
OUTPUTS = {Written: "written", Duplicate: "duplicates", Refused: "rejected", Parked: "parked"}


def run(job: Job) -> None:
    """Run the job from the last checkpoint, if there is one, to the last line, unless it is told to die on the way."""
    # For minutes of moving bytes the quick compiler and the simple collector are the better ones.
    os.environ.setdefault("JVM_ARGS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    environment = StreamExecutionEnvironment.get_execution_environment(settings(job))
    environment.set_parallelism(1)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), job.deliveries.as_uri()).build()
    lines = environment.from_source(source, WatermarkStrategy.no_watermarks(), "deliveries").uid("deliveries")
    sink = job.sink()
    dying = sink if job.dies_after_rows is None else DyingTable(sink, job.dies_after_rows, job.last_words)
    events = lines.process(WritePlainly(job), Types.PICKLED_BYTE_ARRAY()).uid("plain")
    # A file of SQLite serves the one process of the mini cluster.
    count(job, write_once(events, job.gate(shards=SHARDS), dying, one_machine=True))
    environment.execute("demo")
    leave_outcomes(job, counted(job))


def settings(job: Job) -> Configuration:
    """Return a mini cluster's settings: checkpoints that outlive the process, and the one to go on from."""
    configuration = Configuration()
    checkpoints = Path(job.folder, "checkpoints")
    chosen = {
        "rest.port": "0",
        "python.executable": sys.executable,
        "restart-strategy.type": "none",
        "execution.checkpointing.interval": CHECKPOINT_INTERVAL,
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    completed = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
    if completed:
        chosen["execution.state-recovery.path"] = completed[-1].parent.as_uri()
    for name, value in chosen.items():
        configuration.set_string(name, value)
    return configuration


class WritePlainly(ProcessFunction):  # type: ignore[misc]
    """Insert every delivery as one would without a gate, a thousand rows a commit, and pass it on."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def open(self, runtime_context: Any) -> None:
        """Connect."""
        self._open = ExitStack()
        self._connection = self._open.enter_context(self._job.database.connect())
        self._insert = self._job.database.insert(PLAIN)
        self._rows: list[tuple[Any, ...]] = []

    def process_element(self, value: str, ctx: Any) -> Iterable[dict[str, Any]]:
        """Keep the row, and pass the event on."""
        event = json.loads(value)
        self._rows.append(tuple([event[name] for name in COLUMNS]))
        if len(self._rows) >= REPORT_ROWS:
            self._flush()
        return (event,)

    def close(self) -> None:
        """Insert what is left, and close the connection."""
        self._flush()
        self._open.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._connection.cursor().executemany(self._insert, rows)
            self._connection.commit()
            report(self._job, "plain")


class Tell:
    """Turn an outcome into the word that is counted; what an earlier attempt has written is told apart."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._told = 0

    def __call__(self, outcome: Any) -> str:
        self._told += 1
        if self._told % REPORT_ROWS == 0:
            report(self._job, "once")
        return "replayed" if type(outcome) is Written and outcome.replayed else OUTPUTS[type(outcome)]


def count(job: Job, streams: OnceStreams) -> None:
    """Put a two-phase file sink behind the outputs: only what Flink commits is counted."""
    outcomes: DataStream = streams.written.union(streams.duplicates, streams.rejected, streams.parked)
    files = FileSink.for_row_format(_folder(job).as_uri(), Encoder.simple_string_encoder()).build()
    outcomes.map(Tell(job), Types.STRING()).uid("tell").sink_to(files).uid("files")


def counted(job: Job) -> Counter[str]:
    """Count the committed words; files that were not committed have names that begin with a dot."""
    found = Counter({**dict.fromkeys(OUTPUTS.values(), 0), "replayed": 0})
    found.update(_words(_folder(job)))
    return found


def _words(folder: Path) -> Iterator[str]:
    for path in folder.rglob("part-*"):
        with path.open(encoding="utf-8") as file:
            yield from (line.strip() for line in file)


def _folder(job: Job) -> Path:
    return Path(job.folder, "outcomes")
