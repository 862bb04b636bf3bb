"""Any external write as a sink: a function of a batch, or of one record."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any

from .clock import Clock, SystemClock
from .contract import WRITTEN, Answer, LedgerSession, Outcome, Scope, SinkKind, Write
from .errors import Misconfigured, OutcomeUnknown, Rejected, Unavailable
from .wanted import check_durations

log = logging.getLogger("oncesink")

WriteBatch = Callable[[Sequence[Write]], Sequence[Answer] | None]
"""Applies the writes and answers each, in order; None: all of them are written."""

WriteRecord = Callable[[Any, str], object]
"""Applies one record, given with its idempotency key."""

ProbeBatch = Callable[[Sequence[Write]], Sequence[Answer | None]]
"""Tells for each write whether its effect is there: an answer if so, None if surely not."""


@dataclass(frozen=True, slots=True)
class RecordByRecord:
    """A function of one record as a function of a batch.

    An `Answer` is taken as it is; any other value means written, and is the record's result: bytes, or with the gate's
    `results="json"` whatever JSON can hold, are stored. `Rejected` refuses the record; `Unavailable` says that it was
    not applied, and neither are those behind it; whatever else is raised leaves its record's outcome unknown, and the
    others go on.
    """

    function: WriteRecord
    timeout: timedelta = timedelta(seconds=1)

    def run(self, writes: Sequence[Write], timeout_seconds: float, clock: Clock) -> Sequence[Answer]:
        """Call once a record, as long as there is time left for another call."""
        answers: list[Answer] = []
        started = clock.monotonic()
        deadline, longest = started + timeout_seconds, self.timeout.total_seconds()
        for each in writes:
            if started + longest > deadline:
                break
            try:
                answers.append(self._call(each))
            except Unavailable as error:
                if not answers:
                    raise
                return answers + _unsent(len(writes) - len(answers), str(error))
            ended = clock.monotonic()
            longest, started = max(longest, ended - started), ended
        return answers + [_NOT_BEGUN] * (len(writes) - len(answers))

    def _call(self, write: Write) -> Answer:
        try:
            result = self.function(write.record, write.idempotency_key)
        except Unavailable:
            raise
        except Rejected as error:
            return Answer(Outcome.REJECTED, detail=error.detail, reason=error.reason)
        except OutcomeUnknown as error:
            return Answer(Outcome.UNKNOWN, detail=str(error))
        except Exception as error:
            log.exception("the outcome of key %s is unknown", write.idempotency_key)
            return Answer(Outcome.UNKNOWN, detail=f"{type(error).__name__}: {error}")
        if isinstance(result, Answer):
            return result
        return WRITTEN if result is None else Answer(Outcome.WRITTEN, result)


@dataclass(frozen=True, slots=True)
class CallableSink:
    """Recipe of a sink that calls a function.

    `CallableSink(send_batch, name="mails")` gives it `Write`s (record, occurrence, digest or, as text,
    `idempotency_key`), `CallableSink.each(send, name="mails")` one record after the other. `name` says where it
    writes: it is stored with the scope and compared. `drops_by_key`: the other side recognises the key and does
    nothing a second time, for as long as it `remembers`. `timeout` is the longest that a call for a batch takes: the
    function itself must see to that, with time-outs of its own. `atomic`: a batch function that raises `Rejected` has
    applied nothing. `probe` asks the other side whether effects are there. All functions must be picklable.

    Delivery: once where the other side drops a second write by key; else once, but for records in doubt (a crash, or a
    lost answer, between claim and finish), for which the gate's `on_replay` decides.
    Parallelism: any number of sessions; each calls the function from one thread, so that a client that stands in a
    global of its module must be safe to share.
    """

    write: WriteBatch | RecordByRecord
    _: KW_ONLY
    name: str
    drops_by_key: bool = False
    remembers: timedelta | None = None
    timeout: timedelta = timedelta(seconds=10)
    atomic: bool = False
    probe: ProbeBatch | None = None
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)

    @classmethod
    def each(
        cls,
        function: WriteRecord,
        *,
        name: str,
        drops_by_key: bool = False,
        remembers: timedelta | None = None,
        timeout: timedelta = timedelta(seconds=10),
        record_timeout: timedelta = timedelta(seconds=1),
        probe: ProbeBatch | None = None,
    ) -> CallableSink:
        """Call a function of (record, idempotency key) for one record at a time, as `RecordByRecord` says.

        `record_timeout` is the longest that one of these calls takes; `timeout` bounds all of a batch. No record
        is begun that could outlast it: with both alike a call writes one record, and the next call goes on.
        """
        return cls(
            RecordByRecord(function, record_timeout),
            name=name,
            drops_by_key=drops_by_key,
            remembers=remembers,
            timeout=timeout,
            probe=probe,
        )

    def __post_init__(self) -> None:
        check_durations(self)
        if not callable(self.write) and not isinstance(self.write, RecordByRecord):
            raise Misconfigured(f"a CallableSink calls a function of a list of writes, not {self.write!r}")
        if isinstance(self.write, RecordByRecord):
            check_durations(self.write)
        if not self.name:
            raise Misconfigured("a CallableSink needs a name that says where it writes: it is stored with the scope")
        if self.timeout <= timedelta(0):
            raise Misconfigured(f"{self.target}: timeout={self.timeout} must be positive")
        if isinstance(self.write, RecordByRecord) and not timedelta(0) < self.write.timeout <= self.timeout:
            raise Misconfigured(
                f"{self.target}: record_timeout={self.write.timeout} is positive and at most timeout={self.timeout}"
            )
        if self.remembers is not None and not self.drops_by_key:
            raise Misconfigured(f"{self.target}: remembers={self.remembers} does nothing without drops_by_key=True")
        if self.atomic and isinstance(self.write, RecordByRecord):
            raise Misconfigured(f"{self.target}: atomic=True does nothing where records are written one by one")
        self._refuse_unpicklable()

    def _refuse_unpicklable(self) -> None:
        for setting in ("write", "probe"):
            function = getattr(self, setting)
            function = function.function if isinstance(function, RecordByRecord) else function
            try:
                pickle.dumps(function)
            except Exception as error:
                todo = "define it at the top of a module"
                raise Misconfigured(
                    f"{self.target}: {setting}={function!r} cannot be pickled: {todo} ({error})"
                ) from error

    @property
    def kind(self) -> SinkKind:
        return SinkKind.DROPS_BY_KEY if self.drops_by_key else SinkKind.EXTERNAL

    @property
    def target(self) -> str:
        return f"callable {self.name}"

    @property
    def can_probe(self) -> bool:
        return self.probe is not None

    @property
    def tells_occurrence(self) -> bool:
        return False

    def open(self, scope: Scope, ledger: LedgerSession | None) -> CallableSinkSession:
        """Connect nothing: the function does. Without a ledger the scope is registered nowhere."""
        return CallableSinkSession(self)


class CallableSinkSession:
    """A callable sink at work. Nothing is held between calls."""

    store_id: bytes | None = None

    def __init__(self, sink: CallableSink) -> None:
        self._sink = sink

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        sink = self._sink
        if isinstance(sink.write, RecordByRecord):
            return sink.write.run(writes, timeout_seconds, sink.clock)
        answers = sink.write(writes)
        if answers is None:
            return [WRITTEN] * len(writes)
        return self._checked(answers, len(writes), (Answer,))

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        if self._sink.probe is None:
            raise Misconfigured(f"{self._sink.target} cannot be asked: give it probe=")
        return self._checked(self._sink.probe(writes), len(writes), (Answer, type(None)))

    def _checked(self, answers: Sequence[Any], wanted: int, kinds: tuple[type, ...]) -> Sequence[Any]:
        """Refuse answers of which nobody could tell what record they belong to, or what they mean."""
        if len(answers) != wanted:
            raise self._odd(f"{self._sink.target} gave {len(answers)} answers to {wanted} records")
        strange = [each for each in answers if not isinstance(each, kinds)]
        if strange:
            raise self._odd(f"{self._sink.target} answered with {strange[0]!r} where an Answer is wanted")
        return answers

    def _odd(self, what: str) -> OutcomeUnknown:
        # Its records may end up parked; and it is the function that has to be mended.
        log.error("%s: the outcome of these records is unknown", what)
        return OutcomeUnknown(what)

    def close(self) -> None:
        """Nothing is held."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._sink.target}>"


_NOT_BEGUN = Answer(Outcome.UNAVAILABLE, detail="the time of the call was used up before it", retry_after_seconds=0.0)


def _unsent(count: int, why: str) -> list[Answer]:
    return [Answer(Outcome.UNAVAILABLE, detail=why)] * count
