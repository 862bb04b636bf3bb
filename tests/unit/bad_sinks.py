"""Sinks with one flaw each, and one without any: over a file, so that every process sees the same effects."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from oncesink.connectors.contract import ALREADY, WRITTEN, Answer, LedgerSession, Outcome, Scope, SinkKind, Write
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Rejected

Behaviour = Callable[["FileSession", Sequence[Write]], Sequence[Answer]]


@dataclass(frozen=True)
class FileSink:
    """A sink that drops by key, in one file; `behave` is how it writes."""

    path: str
    behave: Behaviour
    timeout: timedelta = field(default=timedelta(seconds=5), kw_only=True)

    kind = SinkKind.DROPS_BY_KEY
    atomic = False
    can_probe = True
    remembers = None
    tells_occurrence = False

    @property
    def target(self) -> str:
        """Return where it writes."""
        return f"file {Path(self.path).name}"

    def open(self, scope: Scope, ledger: LedgerSession | None) -> FileSession:
        """Open it."""
        return FileSession(self)


class FileSession:
    """The file, read anew for each call."""

    store_id: bytes | None = None

    def __init__(self, sink: FileSink) -> None:
        self.sink = sink
        self.path = Path(sink.path)

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        """Write as the sink behaves."""
        return self.sink.behave(self, writes)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        """Tell what is there."""
        known = {key for key, _ in self.lines()}
        return [ALREADY if each.idempotency_key in known else None for each in writes]

    def lines(self) -> list[Any]:
        """Return (key, record) of each effect."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def append(self, *writes: Write) -> None:
        """Add effects, all by one call of the system."""
        text = "".join(json.dumps([each.idempotency_key, each.record]) + "\n" for each in writes)
        with self.path.open("ab", buffering=0) as file:
            file.write(text.encode())

    def new(self, writes: Sequence[Write], key: Callable[[str], str] = str) -> list[Write]:
        """Return those whose key is not there yet."""
        known = {key(each) for each, _ in self.lines()}
        fresh = []
        for each in writes:
            if key(each.idempotency_key) not in known:
                fresh.append(each)
                known.add(key(each.idempotency_key))
        return fresh

    def close(self) -> None:
        """Nothing is held."""


def good(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Write what is new, under a lock, and refuse what cannot be written."""
    readable = [each for each in writes if isinstance(each.record, dict)]
    with Path(f"{session.path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh = session.new(readable)
        session.append(*fresh)
    new = {each.digest for each in fresh}
    return [_answer(each, new) for each in writes]


def _answer(write: Write, new: set[bytes]) -> Answer:
    if not isinstance(write.record, dict):
        return Answer(Outcome.REJECTED, detail="it is no dict", reason="wrong_type")
    return WRITTEN if write.digest in new else ALREADY


def half_applies(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Write one after the other, and leave with an error that says that nothing was applied."""
    answers: list[Answer] = []
    for each in writes:
        if not isinstance(each.record, dict):
            raise Rejected("wrong_type", "it is no dict")
        answers += good(session, [each])
    return answers


def lies(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Say that all is written, and leave the last one out."""
    good(session, writes[:-1])
    return [WRITTEN] * len(writes)


def overruns(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Take longer than it says."""
    time.sleep(session.sink.timeout.total_seconds() + 0.7)
    return good(session, writes)


def not_concurrent(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Read the whole file, add to it, and write it back: whoever wrote in between is overwritten."""
    readable = [each for each in writes if isinstance(each.record, dict)]
    old = session.lines()
    time.sleep(0.005)
    fresh = session.new(readable)
    text = "".join(json.dumps(line) + "\n" for line in [*old, *([e.idempotency_key, e.record] for e in fresh)])
    draft = Path(f"{session.path}.{time.monotonic_ns()}")
    draft.write_text(text)
    draft.replace(session.path)
    new = {each.digest for each in fresh}
    return [_answer(each, new) for each in writes]


def bare_errors(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Read the records before anything is written, and let out what that raises."""
    for each in writes:
        each.record["id"]
    return good(session, writes)


def truncates_keys(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Compare the first eight bytes of the key."""
    readable = [each for each in writes if isinstance(each.record, dict)]
    with Path(f"{session.path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh = session.new(readable, lambda key: key[:16])
        session.append(*fresh)
    new = {each.digest for each in fresh}
    return [_answer(each, new) for each in writes]


def doubles(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Write every time."""
    readable = [each for each in writes if isinstance(each.record, dict)]
    session.append(*readable)
    return [_answer(each, {one.digest for one in readable}) for each in writes]


def loses(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Mark keys before their effects: between the two it may die, and the marks stay."""
    marks = FileSession(FileSink(f"{session.path}.marks", good))
    fresh = []
    for each, answer in zip(writes, good(marks, writes), strict=True):
        if answer is WRITTEN:
            time.sleep(0.002)
            session.append(each)
            fresh.append(each.digest)
    return [_answer(each, set(fresh)) for each in writes]


def unsure(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Be honest about an error that it does not understand: that is no flaw."""
    if not all(isinstance(each.record, dict) for each in writes):
        raise OutcomeUnknown("there is something strange in it")
    return good(session, writes)


def closed(session: FileSession, writes: Sequence[Write]) -> Sequence[Answer]:
    """Never work."""
    raise Misconfigured("it is closed")
