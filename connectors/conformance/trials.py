"""The trials that need nobody to die. Each takes records of its own and notes what it finds."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..contract import Answer, Outcome, SinkKind, Write
from ..errors import OnceSinkError
from .judging import judge
from .report import Flaw
from .subject import Session, Subject

BATCH = 5
CROWD = 4
ROUNDS = 5
SHARED_BYTES = (15, 12, 8, 4, 2)
HURRY_SECONDS = 0.001


class UnreadableOnPurpose:
    """A record that cannot be read: whatever touches it fails."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __getitem__(self, name: object) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Any:
        raise TypeError("this record cannot be read")


def plain(subject: Subject) -> None:
    """Write a batch, a single record, and nothing."""
    session = Session(subject)
    for count in (BATCH, 1):
        writes = subject.writes(count)
        outcomes = judge(subject, writes, session.write(writes, trial="a batch"), "a batch")
        if not subject.findings and set(outcomes) != {Outcome.WRITTEN}:
            subject.remarks.append(f"new records were answered with {sorted({each.value for each in outcomes})}")
    judge(subject, [], session.write([], trial="an empty batch"), "an empty batch")
    session.close()


def bad_in_the_middle(subject: Subject, bad: Sequence[Any]) -> None:
    """Put a record that cannot be written between good ones."""
    for record, trial in (
        (UnreadableOnPurpose(), "an unreadable record in a batch"),
        *((each, "a bad record") for each in bad),
    ):
        good = subject.writes(4)
        writes = [*good[:2], Write(record, secrets.token_bytes(16), None), *good[2:]]
        session = Session(subject)
        call = session.write(writes, trial=trial)
        if call.error is None and not call.late and isinstance(call.value, Sequence) and len(call.value) == 5:
            call = type(call)(value=[*call.value[:2], *call.value[3:]], seconds=call.seconds)
        judge(subject, good, call, trial)
        session.close()


def hurried(subject: Subject) -> None:
    """Give a call no time: what it does not get done it must not claim to have done."""
    writes = subject.writes(BATCH)
    session = Session(subject)
    judge(subject, writes, session.write(writes, seconds=HURRY_SECONDS, trial="no time"), "no time")
    session.close()


def stalled(subject: Subject, stall: Callable[[], AbstractContextManager[object]]) -> None:
    """Write while the other side does not answer, then let it go on and look."""
    writes = subject.writes(BATCH)
    session = Session(subject)
    with stall():
        call = session.write(writes, trial="the other side stands still")
    judge(subject, writes, call, "the other side stands still")
    session.close()


def repeated(subject: Subject) -> bool | None:
    """Write the same digests again, from a session that follows one that was abandoned; tell whether they are dropped.

    None: it could not be told, since the first call did not go through.
    """
    trial = "a digest again"
    writes = subject.writes(BATCH)
    abandoned = Session(subject)
    if set(judge(subject, writes, abandoned.write(writes, trial=trial), trial)) != {Outcome.WRITTEN}:
        return None
    session = Session(subject)
    calls = [session.write(writes, trial=trial), abandoned.write(writes[::-1], trial=trial)]
    counts = subject.settled(writes, lambda found: set(found) == {1})
    drops = max(counts) == 1
    answers = [each for call in calls if call.error is None and not call.late for each in call.value]
    _judge_repetition(subject, drops=drops, answers=answers, trial=trial)
    session.close()
    abandoned.close()
    return drops


def _judge_repetition(subject: Subject, *, drops: bool, answers: Sequence[Answer], trial: str) -> None:
    outcomes = {each.outcome for each in answers}
    if not drops and subject.sink.kind is not SinkKind.EXTERNAL:
        subject.found(Flaw.DOUBLES, trial, f"it says {subject.sink.kind.value}, and a second write was applied")
    elif not drops and outcomes == {Outcome.ALREADY}:
        subject.found(Flaw.LIES, trial, "it answered already, and wrote again")
    elif drops and Outcome.WRITTEN in outcomes:
        subject.remarks.append("it answers written to a second write: replays are not told from first writes")


def alike(subject: Subject) -> bool:
    """Write different records under digests that share their beginning or their end; tell whether all are there."""
    base = secrets.token_bytes(16)
    family = [base]
    for shared in SHARED_BYTES:
        rest = 16 - shared
        family.append(base[:shared] + _unlike(base[shared:]))
        family.append(_unlike(base[:rest]) + base[rest:])
    session = Session(subject)
    writes = subject.writes(len(family), family)
    for each in writes:
        session.write([each], trial="digests that are alike")
    counts = subject.settled(writes, all)
    missing = [each.idempotency_key for each, count in zip(writes, counts, strict=True) if not count]
    if missing:
        what = f"beside {base.hex()} it did not write {', '.join(missing[:3])}: compare all 16 bytes"
        subject.found(Flaw.TRUNCATES_KEYS, "digests that are alike", what)
    session.close()
    return not missing


def _unlike(part: bytes) -> bytes:
    """Return bytes of which none is as it was: drawn ones may come out alike."""
    return bytes(byte ^ (1 + secrets.randbelow(255)) for byte in part)


def probed(subject: Subject) -> None:
    """Ask for what is there and for what is not."""
    there, absent = subject.writes(2), subject.writes(2)
    session = Session(subject)
    outcomes = judge(subject, there, session.write(there, trial="a probe"), "a probe")
    call = session.probe([*absent, *there])
    if call.error is None and not call.late and outcomes == [Outcome.WRITTEN] * 2:
        told = [each is not None for each in call.value]
        if told != [False, False, True, True]:
            what = f"asked for two effects that are not there and two that are, it said {told}"
            subject.found(Flaw.LIES, "a probe", what)
    if any(subject.counted(absent)):
        subject.found(Flaw.LIES, "a probe", "it wrote what it was only asked for")
    session.close()


def crowded(subject: Subject) -> bool:
    """Write from several sessions at once; tell whether each effect is there once."""
    trial = "several sessions at once"
    sessions = [Session(subject) for _ in range(CROWD)]
    clean = all(_round(subject, sessions, trial) for _ in range(ROUNDS))
    for each in sessions:
        each.close()
    return clean


def _round(subject: Subject, sessions: Sequence[Session], trial: str) -> bool:
    """Let each session write a batch of its own and, where a second write is harmless, one that all write."""
    drops = subject.sink.kind is SinkKind.DROPS_BY_KEY and not subject.has(Flaw.DOUBLES)
    shared = subject.writes(BATCH) if drops else []
    batches = [[*subject.writes(BATCH), *shared] for _ in sessions]
    pending = [each.begin(batch) for each, batch in zip(sessions, batches, strict=True)]
    calls = [subject.timed(each, trial) for each in pending]
    sure: dict[bytes, Write] = {}
    trouble = ""
    for batch, call in zip(batches, calls, strict=True):
        if call.error is not None and not isinstance(call.error, OnceSinkError):
            trouble = trouble or f"{type(call.error).__name__}: {call.error}"
        answers = call.value if isinstance(call.value, Sequence) else []
        for write, answer in zip(batch, answers, strict=False):
            if answer.outcome in (Outcome.WRITTEN, Outcome.ALREADY):
                sure[write.digest] = write
    counts = subject.settled(list(sure.values()), lambda found: set(found) <= {1})
    wrong = [f"{count} times" for count in counts if count != 1]
    if wrong:
        trouble = f"of {len(sure)} effects {len(wrong)} are there {' or '.join(sorted(set(wrong)))}"
    if trouble:
        subject.found(Flaw.NOT_CONCURRENT, trial, trouble)
    return not trouble
