"""Small Beam jobs for tests: what came out of them, and how many connections they opened."""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import PickleCoder, registry
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from oncesink.connectors.contract import Ledger, Scope, Sink
from oncesink.connectors.faults import Faults
from oncesink.connectors.faulty import FaultyLedger, FaultyLedgerSession
from oncesink.transforms import Gate
from oncesink.transforms.beam import DropDuplicates, WriteOnce

GATHERED: dict[str, list[Any]] = {}
"""What came out, by output; runners that pickle what they run still find it in their own process."""

OPENED: Counter[str] = Counter()
"""How many sessions are open, under `open`, and how many there were, under `all`."""

NO_FAULTS = Faults()


class AnyRecord:
    """The type of a collection whose records travel pickled: Beam's own coder fails on text with lone surrogates."""


registry.register_coder(AnyRecord, PickleCoder)


class Gather(beam.DoFn):
    """Keep each element, or with `placed` each element's value, timestamp in seconds and window."""

    def __init__(self, name: str, *, placed: bool = False) -> None:
        super().__init__()
        self._name = name
        self._placed = placed

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterable[Any]:
        """Keep it, and give nothing on."""
        found = (element, float(timestamp), window) if self._placed else element
        GATHERED.setdefault(self._name, []).append(found)
        return ()


def gather(outputs: Mapping[str, Any], *, placed: bool = False) -> None:
    """Let every output be gathered under its name."""
    for name, output in outputs.items():
        GATHERED.setdefault(name, [])
        output | f"Gather {name}" >> beam.ParDo(Gather(name, placed=placed))


def records_of(pipeline: beam.Pipeline, records: Sequence[Any]) -> Any:
    """Return records as a collection in one bundle, in order, whatever coders think of them."""
    pickled = [pickle.dumps(record) for record in records]
    unpickle = beam.Map(pickle.loads).with_output_types(AnyRecord)
    return pipeline | "Create" >> beam.Create(pickled, reshuffle=False) | "Unpickle" >> unpickle


def counts(result: Any) -> dict[str, int]:
    """Return the library's counters of a job."""
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("oncesink"))["counters"]
    return {each.key.metric.name: each.committed for each in found}


def run_job(records: Sequence[Any], transform: Any) -> dict[str, Any]:
    """Run a transform in the FnApiRunner, by name because Beam's choice of a direct runner differs by version."""
    GATHERED.clear()
    pipeline = beam.Pipeline(runner=FnApiRunner())
    gather(records_of(pipeline, records) | transform)
    pipeline.run().wait_until_finish()
    return dict(GATHERED)


def run_write(records: Sequence[Any], gate: Gate, sink: Sink) -> dict[str, Any]:
    """Run a job that writes."""
    return run_job(records, WriteOnce(gate, sink))


def run_drop(records: Sequence[Any], gate: Gate) -> dict[str, Any]:
    """Run a job that filters."""
    return run_job(records, DropDuplicates(gate))


class CountedLedger(FaultyLedger):
    """A ledger whose open sessions are counted, with a script of faults."""

    def __init__(self, inner: Ledger, faults: Faults | None = None) -> None:
        super().__init__(inner, faults or NO_FAULTS)

    def open(self, scope: Scope) -> CountedSession:
        """Open the ledger behind."""
        session = CountedSession(super().open(scope).inner, self.faults)
        OPENED.update(["open", "all"])
        return session


class CountedSession(FaultyLedgerSession):
    """A session that is counted until it is closed."""

    def close(self) -> None:
        """Close the session behind."""
        OPENED.subtract(["open"])
        super().close()


def forget_beam() -> Iterator[None]:
    """Start with nothing gathered and nothing counted; what an earlier test let go of is closed before."""
    gc.collect()
    GATHERED.clear()
    OPENED.clear()
    yield
    GATHERED.clear()
