"""The demo's pipeline on Beam: lines in, two tables out, one written plainly and one through the gate."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.combiners import ToDict
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue
from oncesink.pipelines.demo_job import REPORT_ROWS, Job, leave_outcomes, report
from oncesink.pipelines.demo_kill import DyingTable
from oncesink.pipelines.demo_tables import COLUMNS, PLAIN
from oncesink.transforms.beam import ReadJsonLines, WriteOnce
from oncesink.transforms.results import Written

RUNNER = FnApiRunner


def run(job: Job) -> None:
    """Run the pipeline from the first line to the last, unless the job says that it dies on the way."""
    sink = job.sink()
    once = WriteOnce(
        job.gate(), sink if job.dies_after_rows is None else DyingTable(sink, job.dies_after_rows, job.last_words)
    )
    with beam.Pipeline(runner=RUNNER(), options=PipelineOptions([])) as pipeline:
        lines = pipeline | ReadJsonLines(str(job.deliveries))
        outputs = lines | "WritePlainly" >> beam.ParDo(WritePlainly(job)) | once
        counts = [outputs[name] | f"Count {name}" >> beam.ParDo(CountOutcomes(job, name)) for name in outputs]
        (
            counts
            | beam.Flatten()
            | beam.CombinePerKey(sum)
            | ToDict()
            | beam.Map(lambda outcomes: leave_outcomes(job, outcomes))
        )


class WritePlainly(beam.DoFn):
    """Insert every delivery, as one would without a gate: a thousand rows, a commit. Pass each on."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def setup(self) -> None:
        """Connect."""
        self._open = ExitStack()
        self._connection = self._open.enter_context(self._job.database.connect())
        self._insert = self._job.database.insert(PLAIN)

    def start_bundle(self) -> None:
        """Begin without rows."""
        self._rows: list[tuple[Any, ...]] = []

    def process(self, element: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Keep the row; return the event without its place in the file, since it says itself where it stood."""
        event = {name: element[name] for name in COLUMNS}
        self._rows.append(tuple(event.values()))
        if len(self._rows) >= REPORT_ROWS:
            self._flush()
        return (event,)

    def finish_bundle(self) -> None:
        """Insert what is left."""
        self._flush()

    def teardown(self) -> None:
        """Close the connection."""
        self._open.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._connection.cursor().executemany(self._insert, rows)
            self._connection.commit()
            report(self._job, "plain", len(rows))


class CountOutcomes(beam.DoFn):
    """Count what comes out of one output, a number a bundle: only those of bundles that were committed arrive."""

    def __init__(self, job: Job, output: str) -> None:
        self._job = job
        self._output = output

    def start_bundle(self) -> None:
        """Begin at zero."""
        self._counted = {self._output: 0, "replayed": 0}
        self._untold = 0

    def process(self, element: Any) -> None:
        """Count one; what an earlier attempt has written is told apart."""
        replayed = type(element) is Written and element.replayed
        self._counted["replayed" if replayed else self._output] += 1
        self._untold += 1
        if self._untold == REPORT_ROWS:
            self._tell()

    def finish_bundle(self) -> Iterable[WindowedValue]:
        """Return the counts."""
        self._tell()
        window = GlobalWindow()
        return [WindowedValue(each, window.max_timestamp(), (window,)) for each in self._counted.items()]

    def _tell(self) -> None:
        report(self._job, "once", self._untold)
        self._untold = 0
