"""Whether the end of a call fits what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..contract import Answer, Outcome, Write
from ..errors import OnceSinkError, OutcomeUnknown, Rejected, Unavailable
from .actor import Call
from .report import Flaw
from .subject import Subject

THERE = (Outcome.WRITTEN, Outcome.ALREADY)
NOT_THERE = (Outcome.REJECTED, Outcome.UNAVAILABLE)


def judge(subject: Subject, writes: Sequence[Write], call: Call, trial: str) -> list[Outcome]:
    """Compare the first call for these writes with what is there; return the outcomes, UNKNOWN where it told none."""
    unknown = [Outcome.UNKNOWN] * len(writes)
    if call.late:
        return unknown
    if call.error is not None:
        _judge_error(subject, writes, call.error, trial)
        return unknown
    answers = _answers(subject, writes, call.value, trial)
    if answers is None:
        return unknown
    outcomes = [each.outcome for each in answers]
    counts = subject.settled(writes, lambda found: _fits(outcomes, found))
    for write, outcome, count in zip(writes, outcomes, counts, strict=True):
        _judge_one(subject, write, outcome, count, trial)
    return outcomes


def _judge_error(subject: Subject, writes: Sequence[Write], error: BaseException, trial: str) -> None:
    if not isinstance(error, OnceSinkError):
        what = f"{type(error).__name__}: {error}; raise Unavailable, Rejected or OutcomeUnknown, or answer each record"
        subject.found(Flaw.BARE_ERRORS, trial, what)
    elif isinstance(error, (Unavailable, Rejected)) and not isinstance(error, OutcomeUnknown):
        there = sum(1 for each in subject.settled(writes, lambda found: not any(found)) if each)
        if there:
            what = f"it raised {type(error).__name__}, and {there} of {len(writes)} records are there"
            subject.found(Flaw.HALF_APPLIES, trial, what)


def _answers(subject: Subject, writes: Sequence[Write], value: Any, trial: str) -> Sequence[Answer] | None:
    try:
        answers = list(value)
    except TypeError:
        answers = [value]
    if len(answers) == len(writes) and all(isinstance(each, Answer) for each in answers):
        return answers
    subject.found(Flaw.LIES, trial, f"{len(answers)} answers to {len(writes)} records, or what is no Answer")
    return None


def _fits(outcomes: Sequence[Outcome], counts: Sequence[int]) -> bool:
    return all(
        (count == 1 or outcome not in THERE) and (count == 0 or outcome not in NOT_THERE)
        for outcome, count in zip(outcomes, counts, strict=True)
    )


def _judge_one(subject: Subject, write: Write, outcome: Outcome, count: int, trial: str) -> None:
    said = f"{outcome.value} for key {write.idempotency_key}"
    if outcome in THERE and count == 0:
        subject.found(Flaw.LIES, trial, f"it answered {said}, and the effect is not there")
    elif outcome in THERE and count > 1:
        subject.found(Flaw.LIES, trial, f"it answered {said} once, and the effect is there {count} times")
    elif outcome in NOT_THERE and count:
        subject.found(Flaw.LIES, trial, f"it answered {said}, and the effect is there")
