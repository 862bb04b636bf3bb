"""`RichSinkFunction`: sinks that people write in Python for Flink, alone or behind a gate.

PyFlink has none: its `Sink` wraps a Java object. What works is a sink that puts a Python step before the Java sink
that discards.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

from pyflink.datastream import DataStream, ProcessFunction
from pyflink.datastream.connectors.base import Sink as FlinkSink
from pyflink.datastream.connectors.base import StreamTransformer, SupportsPreprocessing

from ..connectors.contract import WRITTEN, Answer, LedgerSession, Outcome, Scope, Sink, SinkKind, Write
from ..connectors.errors import Misconfigured, OutcomeUnknown, Rejected, Unavailable
from .flink_outputs import discarding

log = logging.getLogger("oncesink")

_context: ContextVar[Any] = ContextVar("oncesink_flink_context", default=None)


class PythonSink(FlinkSink, SupportsPreprocessing):  # type: ignore[misc]
    """A Flink sink whose work is done in Python. Nothing of Java is touched before it is put behind a stream."""

    def __init__(self) -> None:
        """Do not wrap a Java object yet: this value also travels to workers, which have no gateway."""

    def apply(self, stream: DataStream) -> DataStream:
        """Return the stream behind the Python steps; what comes out there is discarded, or goes to `java_sink`."""
        raise NotImplementedError

    def java_sink(self) -> Any:
        """Return the Java sink that ends the stream."""
        return discarding().get_java_function()

    def get_java_function(self) -> Any:
        return self.java_sink()

    def get_transformer(self) -> StreamTransformer:
        return _Steps(self.apply)


class _Steps(StreamTransformer):  # type: ignore[misc]
    def __init__(self, apply: Callable[[DataStream], DataStream]) -> None:
        self._apply = apply

    def apply(self, ds: DataStream) -> DataStream:
        return self._apply(ds)


class RichSinkFunction(PythonSink, ABC):
    """Base of one's own Python sink, with the life cycle of Java's: open, invoke, close.

    `stream.sink_to(MySink())` writes each record as often as Flink brings it; `stream.sink_to(OnceSink(gate,
    MySink()))` once. It is pickled on its way to the workers: connect in `open`, not in `__init__`.

    Class attributes say what a second write does. `kind` is EXTERNAL unless the other side recognises
    `write.idempotency_key`: then it is DROPS_BY_KEY, and `remembers` says for how long. One `invoke` must return or
    raise within `timeout`; a batch may take twice as long, and the lease of the gate has to be longer. `target` names
    the other side in the scope, the class unless set: renamed, it is another one.
    """

    kind: SinkKind = SinkKind.EXTERNAL
    timeout: timedelta = timedelta(seconds=5)
    remembers: timedelta | None = None

    @property
    def target(self) -> str:
        # Not its module: that is `__main__` in one way of starting a job, and another one in the next.
        return type(self).__qualname__

    def open(self, context: Any) -> None:
        """Connect. `context` is Flink's RuntimeContext, and None where rows in doubt are settled outside of Flink."""

    @abstractmethod
    def invoke(self, value: Any, write: Write) -> Answer | bytes | None:
        """Write one record; return its result if the gate is to store one, or an `Answer` (ALREADY, REJECTED).

        `write` carries the idempotency key behind a gate; without one its digest is empty. Raise `Rejected` for a
        record that is refused for ever, `Unavailable` if nothing was applied, `OutcomeUnknown`, or anything else, if
        it may have been.
        """

    def close(self) -> None:
        """Let go of what `open` took. Called as well where a later step of opening failed."""

    def apply(self, stream: DataStream) -> DataStream:
        return stream.process(_Invoke(self)).name(f"Sink: {self.target}")


class _Invoke(ProcessFunction):  # type: ignore[misc]
    """Call the function for each record, without a gate."""

    def __init__(self, function: RichSinkFunction) -> None:
        self._function = function

    def open(self, runtime_context: Any) -> None:
        self._function.open(runtime_context)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        answer = self._function.invoke(value, Write(value, b"", None))
        if isinstance(answer, Answer) and answer.outcome not in (Outcome.WRITTEN, Outcome.ALREADY, Outcome.STALE):
            raise OutcomeUnknown(f"{self._function.target} answered {answer.outcome.value} {answer.detail}")
        return ()

    def close(self) -> None:
        self._function.close()


@dataclass(frozen=True, slots=True)
class InvokedSink:
    """A `RichSinkFunction` as a sink of the gate."""

    function: RichSinkFunction

    atomic = False
    can_probe = False
    tells_occurrence = False

    @property
    def kind(self) -> SinkKind:
        return self.function.kind

    @property
    def target(self) -> str:
        return self.function.target

    @property
    def timeout(self) -> timedelta:
        return 2 * self.function.timeout

    @property
    def remembers(self) -> timedelta | None:
        return self.function.remembers

    def open(self, scope: Scope, ledger: LedgerSession | None) -> _InvokedSession:
        if ledger is None:
            raise Misconfigured(f"{self.target} does not keep its scope: give the gate a ledger")
        return _InvokedSession(self.function, _context.get())


def known_sink(sink: Sink | RichSinkFunction) -> Sink:
    """Return a sink as the gate knows it."""
    return InvokedSink(sink) if isinstance(sink, RichSinkFunction) else sink


_LEFT_OVER = Answer(
    Outcome.UNAVAILABLE, detail="there was no time left for another call of invoke", retry_after_seconds=0.0
)


class _InvokedSession:
    store_id: bytes | None = None

    def __init__(self, function: RichSinkFunction, context: Any) -> None:
        self._function = function
        self._told = False
        try:
            function.open(context)
        except BaseException:
            function.close()
            raise

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        # No call starts that might end too late; what is left over is sent with the next batch.
        until = monotonic() + timeout_seconds - self._function.timeout.total_seconds()
        return [self._one(each) if monotonic() <= until else _LEFT_OVER for each in writes]

    def _one(self, write: Write) -> Answer:
        try:
            answer = self._function.invoke(write.record, write)
        except Rejected as error:
            return Answer(Outcome.REJECTED, reason=error.reason, detail=error.detail)
        except Unavailable as error:
            return Answer(Outcome.UNAVAILABLE, detail=str(error))
        except Exception as error:
            if not self._told:
                # Once: where it is said again and again, the place does not change.
                log.warning("%s raised, its record is in doubt", self._function.target, exc_info=error)
                self._told = True
            return Answer(Outcome.UNKNOWN, detail=f"{type(error).__name__}: {error}")
        if isinstance(answer, Answer):
            return answer
        return WRITTEN if answer is None else Answer(Outcome.WRITTEN, result=answer)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise Misconfigured(f"{self._function.target} cannot be asked")

    def close(self) -> None:
        self._function.close()


@contextmanager
def seen_by_open(context: Any) -> Iterator[None]:
    """Let each `RichSinkFunction` that is opened meanwhile see the RuntimeContext."""
    before = _context.set(context)
    try:
        yield
    finally:
        _context.reset(before)
