"""`OnceWriter`: the gate in plain Python, for programs without an engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any

from ..connectors.clock import Clock
from ..connectors.contract import Sink
from ..connectors.errors import Misconfigured, OnceSinkError
from .batching import batches
from .cold_start import began
from .filter_watch import FilterWatch
from .flush import Flushed
from .gate import Gate, describe_guarantee
from .membership import MembershipFilter
from .metrics import Metrics
from .patience import settle
from .prepare import Item
from .results import Refused, Results
from .retry import Attempts
from .session import GateSession


class OnceWriter:
    """Write records so that one that arrives twice changes the world once.

    A context manager, used by one thread::

        with OnceWriter(gate, sink) as writer:
            results = writer.write(records)

    Raises `Misconfigured` at once where settings and stores do not fit.
    """

    def __init__(
        self,
        gate: Gate,
        sink: Sink,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self._session = GateSession(gate, sink, metrics=metrics, clock=clock, attempts=attempts)
        self._membership = self._new_filter()
        self._watch = FilterWatch(self._session.metrics, self._session.clock)

    @property
    def metrics(self) -> Metrics:
        return self._session.metrics

    def write(self, records: Iterable[Any], *, refused: Iterable[Refused] = ()) -> Results:
        """Write them all, in batches; return when every record has an outcome.

        What was `refused` before, by whoever decoded it, goes where the gate's own rejected records go.

        Otherwise it raises, and the error's `results` hold what is certain: `InDoubt`, `Unavailable`,
        `OutcomeUnknown`, or, when everything else is finished, `RecordsRejected` and `RecordsParked`. Repeating the
        call after a raise is right.
        """
        if isinstance(records, (Mapping, str, bytes)):
            # Iterating would give its fields or letters, and the gate would refuse each of them.
            raise Misconfigured(f"write takes several records, write([record]), not one: {type(records).__name__}")
        results = Results(rejected=list(refused))
        trouble: Exception | None = None
        try:
            for batch in self._batches(records, results):
                trouble = self._settle(batch, results)
                if trouble is not None:
                    break
        except Exception as error:  # noqa: BLE001 - it is raised below, with what is certain
            trouble = error
        problem = self._session.deliver(results)
        _raise(trouble or problem, results)
        return results

    def _batches(self, records: Iterable[Any], results: Results) -> Iterator[list[Item]]:
        """Prepare and cut; what cannot enter the gate is refused on the way."""
        bounds = self._session.gate.batch
        source = iter(records)
        while chunk := list(islice(source, bounds.rows)):
            prepared = self._session.prepare.batch(chunk)
            items = [each for each in prepared if type(each) is Item]
            if len(items) < len(prepared):
                results.rejected += [each for each in prepared if type(each) is Refused]
            yield from batches(items, bounds)

    def _settle(self, items: Sequence[Item], results: Results) -> Exception | None:
        settled, trouble = settle(items, self._flush, self._session.clock)
        results.collect([outcome for _, outcome in settled])
        return trouble

    def _new_filter(self) -> MembershipFilter | None:
        return began(self._session.gate, self._session.metrics)

    def _flush(self, items: Sequence[Item]) -> Flushed:
        flushed = self._session.flush(items, self._membership)
        if self._membership is not None:
            self._watch.look((self._membership,))
        return flushed

    def close(self) -> None:
        """Give every connection back. Safe to repeat."""
        self._session.close()

    def __enter__(self) -> OnceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        session = self._session
        return f"<OnceWriter {describe_guarantee(session.gate, session.sink)}; generation={session.gate.generation}>"


def _raise(error: Exception | None, results: Results) -> None:
    if error is None:
        return
    if isinstance(error, OnceSinkError):
        error.results = results
    raise error
