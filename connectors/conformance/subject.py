"""The sink that is examined, the records it gets, and what is there afterwards."""

from __future__ import annotations

import queue
import secrets
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..contract import ALREADY, Answer, Claim, Ledger, LedgerSession, Scope, Sink, SinkKind, SinkSession, Use, Write
from ..errors import Misconfigured
from .actor import Actor, Call, ended
from .report import Finding, Flaw

SLACK_SECONDS = 0.5
"""How much later than its time-out a call may end: threads and garbage are not the sink's fault."""

_ENOUGH = 'give a generator of ever new ones, such as ({"id": f"order-{n}"} for n in itertools.count())'

ReadBack = Callable[[], Iterable[Any]]
Identify = Callable[[Any], Hashable]


def new_scope() -> Scope:
    """Return a scope that no earlier examination has used."""
    return Scope(name=f"conformance-{secrets.token_hex(6)}", use=Use.WRITE)


class Opened:
    """A sink at work, with its ledger where it needs one. Lives in one thread."""

    def __init__(self, sink: Sink, scope: Scope) -> None:
        ledger: Ledger | None = getattr(sink, "ledger", None) if sink.kind is SinkKind.TRANSACTIONAL else None
        self.kind = sink.kind
        self.ledger: LedgerSession | None = ledger.open(scope) if ledger is not None else None
        self.session: SinkSession = sink.open(scope, self.ledger)

    def write(self, writes: Sequence[Write], seconds: float) -> Sequence[Answer]:
        """Write as a gate does: a transactional sink with its claims, in one transaction."""
        if self.ledger is None:
            return self.session.write(writes, timeout_seconds=seconds)
        owner = secrets.token_bytes(16)
        claims = [Claim(each.digest, each.occurrence, None) for each in writes]
        with self.ledger.transaction():
            rows = self.ledger.claim(claims, owner=owner, lease_seconds=None)
            fresh = [each for each in writes if not rows or rows[each.digest].owner == owner]
            if len(fresh) == len(writes):
                return self.session.write(fresh, timeout_seconds=seconds)
            new = {each.digest for each in fresh}
            answers = iter(self.session.write(fresh, timeout_seconds=seconds) if fresh else ())
            return [next(answers) if each.digest in new else ALREADY for each in writes]

    def close(self) -> None:
        """Close both."""
        self.session.close()
        if self.ledger is not None:
            self.ledger.close()


class Session:
    """An open sink, in a thread of its own."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._actor = Actor()
        call = self._actor.call(lambda: Opened(subject.sink, subject.scope), 60.0)
        if call.error is not None or call.late:
            raise Misconfigured(f"{subject.sink.target} does not open: {call.error or 'within a minute'}")
        self._opened: Opened = call.value

    def write(self, writes: Sequence[Write], *, seconds: float | None = None, trial: str) -> Call:
        """Write, measure, and note a call that outlasts its time."""
        return self._subject.timed(self.begin(writes, seconds), trial)

    def begin(self, writes: Sequence[Write], seconds: float | None = None) -> queue.SimpleQueue[Call]:
        """Start to write."""
        given = self._subject.timeout_seconds if seconds is None else seconds
        return self._actor.begin(lambda: self._opened.write(writes, given))

    def probe(self, writes: Sequence[Write]) -> Call:
        """Ask for effects."""
        seconds = self._subject.timeout_seconds
        call = self._actor.begin(lambda: self._opened.session.probe(writes, timeout_seconds=seconds))
        return self._subject.timed(call, "a probe")

    def close(self) -> None:
        """Close it, unless it is stuck."""
        self._actor.call(self._opened.close, 5.0)


@dataclass
class Subject:
    """One sink under examination, and what was found so far."""

    sink: Sink
    records: Iterator[Any]
    read_back: ReadBack
    identify: Identify
    grace_seconds: float
    scope: Scope = field(default_factory=new_scope)
    findings: list[Finding] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    _used: set[Hashable] = field(default_factory=set)

    @property
    def timeout_seconds(self) -> float:
        """The longest that a call may take, as the sink says."""
        return self.sink.timeout.total_seconds()

    def found(self, flaw: Flaw, trial: str, what: str) -> None:
        """Note a flaw, once for each trial."""
        if not any((each.flaw, each.trial) == (flaw, trial) for each in self.findings):
            self.findings.append(Finding(flaw=flaw, trial=trial, what=what))

    def has(self, *flaws: Flaw) -> bool:
        """Tell whether one of these was found."""
        return any(each.flaw in flaws for each in self.findings)

    def writes(self, count: int, digests: Sequence[bytes] | None = None) -> list[Write]:
        """Make writes of records that were not used yet."""
        return [self._write(None if digests is None else digests[number]) for number in range(count)]

    def _write(self, digest: bytes | None) -> Write:
        try:
            record = next(self.records)
        except StopIteration:
            raise Misconfigured(f"{len(self._used)} records are too few: {_ENOUGH}") from None
        identity = self.identify(record)
        if identity in self._used:
            raise Misconfigured(f"two records are taken for one, {identity!r}: {_ENOUGH}, or another identify=")
        self._used.add(identity)
        return Write(record, digest or secrets.token_bytes(16), secrets.token_bytes(8))

    def counted(self, writes: Sequence[Write]) -> list[int]:
        """Return how many effects of each write are there now."""
        there: Counter[Hashable] = Counter()
        for each in self.read_back():
            # What is not a record of ours, such as the one that was made to fail, is of no interest.
            with suppress(Exception):
                there[self.identify(each)] += 1
        return [there[self.identify(each.record)] for each in writes]

    def settled(self, writes: Sequence[Write], wanted: Callable[[list[int]], bool]) -> list[int]:
        """Return the counts once they are as wanted, or when the grace is over."""
        deadline = time.monotonic() + self.grace_seconds
        while not wanted(found := self.counted(writes)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def timed(self, pending: queue.SimpleQueue[Call], trial: str) -> Call:
        """Wait for a call; note where it outlasts its time."""
        limit = self.timeout_seconds + SLACK_SECONDS
        call = ended(pending, limit)
        self.slowest_seconds = max(self.slowest_seconds, call.seconds)
        if call.late or call.seconds > limit:
            self.found(Flaw.OVERRUNS, trial, f"a call still ran after {limit:.1f} s, timeout is {self.sink.timeout}")
            # What it does in the end is not waited for for long: other trials go on with other sessions.
            return ended(pending, limit) if call.late else call
        return call
