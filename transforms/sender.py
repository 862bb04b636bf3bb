"""Hand records to a sink that is not in the ledger's transaction, and sort what may and may not have happened."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..connectors.contract import Answer, Outcome, SinkKind, SinkSession
from ..connectors.errors import OutcomeUnknown, Rejected, Unavailable
from .flush import Kit
from .groups import Group

log = logging.getLogger("oncesink")

_SETTLED = (Outcome.WRITTEN, Outcome.ALREADY, Outcome.STALE, Outcome.REJECTED)


@dataclass(slots=True)
class Sent:
    """How a batch fared: certain answers, records surely not applied, perhaps applied, and the first trouble."""

    answered: list[tuple[Group, Answer]] = field(default_factory=list)
    unsent: list[Group] = field(default_factory=list)
    unknown: list[Group] = field(default_factory=list)
    trouble: Exception | None = None
    late: bool = False
    """Whether the unsent ones are so only because their lease had no room left for another call."""


class _TryAgain(Exception):
    """Some records of the batch may be sent once more, not before the time that the sink asked for."""

    def __init__(self, trouble: Exception | None) -> None:
        super().__init__(str(trouble))
        self.retry_after_seconds: float | None = getattr(trouble, "retry_after_seconds", None)


class Sender:
    """One sink, and what its kind allows: repeating after a lost reply, splitting around a bad record."""

    def __init__(self, sink: SinkSession, kit: Kit, *, atomic: bool) -> None:
        self._sink = sink
        self._kit = kit
        self._drops = kit.rules.kind is SinkKind.DROPS_BY_KEY
        self._splits = atomic or self._drops

    def send(self, groups: Sequence[Group], deadline: float) -> Sent:
        """Send until each record has a certain answer, or may not be sent again, or the attempts are used up.

        No call starts that could still run at `deadline` (monotonic seconds): the lease ends there.
        """
        sent = Sent()
        pending = list(groups)
        try:
            for number, attempt in enumerate(self._kit.attempts(_TryAgain)):
                with attempt:
                    if number:
                        self._kit.metrics.count("retries")
                    pending = self._send_on(pending, deadline, sent)
                    if pending and not sent.late:
                        raise _TryAgain(sent.trouble)
        except _TryAgain:
            pass
        for each in pending:
            (sent.unknown if each.applied else sent.unsent).append(each)
        return sent

    def _send_on(self, groups: list[Group], deadline: float, sent: Sent) -> list[Group]:
        """Send, and go on at once as long as each call gets some records through and asks for no pause."""
        while True:
            through, before, sent.trouble = len(sent.answered), sent.trouble, None
            groups = self._send_once(groups, deadline, sent)
            at_once = getattr(sent.trouble, "retry_after_seconds", None) == 0.0
            sent.trouble = sent.trouble or before
            if not groups or not at_once or len(sent.answered) == through:
                return groups

    def _send_once(self, groups: list[Group], deadline: float, sent: Sent) -> list[Group]:
        if self._kit.clock.monotonic() + self._kit.sink_timeout_seconds > deadline:
            sent.late = True
            return groups
        answers, trouble = self._call(groups, deadline)
        pending = []
        for each, answer in zip(groups, answers, strict=True):
            if answer.outcome in _SETTLED:
                if answer.result is not None:
                    answer = answer._replace(result=self._kit.results.encode(answer.result))  # noqa: PLW2901
                sent.answered.append((each, answer))
                continue
            if answer.outcome is Outcome.UNKNOWN:
                each.applied = True
            trouble = _worse(trouble, _trouble(answer))
            if answer.outcome is Outcome.UNKNOWN and not self._drops:
                sent.unknown.append(each)
            else:
                pending.append(each)
        sent.trouble = trouble or sent.trouble
        return pending

    def _call(self, groups: Sequence[Group], deadline: float) -> tuple[Sequence[Answer], Exception | None]:
        """Answers for all of them, whatever the sink raises."""
        try:
            answers = self._sink.write([each.write() for each in groups], timeout_seconds=self._room(deadline))
        except Rejected as error:
            return self._rejected(groups, deadline, error)
        except Unavailable as error:
            return [Answer(Outcome.UNAVAILABLE)] * len(groups), error
        except Exception as error:
            if not isinstance(error, OutcomeUnknown):
                log.exception(
                    "the sink raised %s: the outcome of %d records is unknown", type(error).__name__, len(groups)
                )
            return [Answer(Outcome.UNKNOWN)] * len(groups), error
        if len(answers) == len(groups):
            return answers, None
        wrong = OutcomeUnknown(f"the sink gave {len(answers)} answers to {len(groups)} records")
        log.error("%s: their outcome is unknown", wrong)
        return [Answer(Outcome.UNKNOWN)] * len(groups), wrong

    def _rejected(
        self, groups: Sequence[Group], deadline: float, error: Rejected
    ) -> tuple[Sequence[Answer], Exception | None]:
        """Nothing was applied, or it does not matter: halve until the bad record stands alone."""
        if len(groups) == 1:
            return [Answer(Outcome.REJECTED, detail=error.detail, reason=error.reason)], None
        if not self._splits:
            return [Answer(Outcome.UNKNOWN)] * len(groups), error
        middle = len(groups) // 2
        left, trouble = self._half(groups[:middle], deadline)
        right, more = self._half(groups[middle:], deadline)
        return [*left, *right], trouble or more

    def _half(self, groups: Sequence[Group], deadline: float) -> tuple[Sequence[Answer], Exception | None]:
        if self._kit.clock.monotonic() + self._kit.sink_timeout_seconds > deadline:
            return [Answer(Outcome.UNAVAILABLE)] * len(groups), None
        return self._call(groups, deadline)

    def _room(self, deadline: float) -> float:
        return min(self._kit.sink_timeout_seconds, deadline - self._kit.clock.monotonic())


def _trouble(answer: Answer) -> Exception:
    told = answer.detail or f"the sink answered {answer.outcome.value}"
    if answer.outcome is Outcome.UNKNOWN:
        return OutcomeUnknown(told)
    return Unavailable(told, retry_after_seconds=answer.retry_after_seconds)


def _worse(first: Exception | None, other: Exception) -> Exception:
    """Return the first trouble, or the one that asks for a longer pause."""
    if first is None:
        return other
    longest = [getattr(each, "retry_after_seconds", None) or 0.0 for each in (first, other)]
    return other if longest[1] > longest[0] else first
