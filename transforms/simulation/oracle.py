"""Judge what a schedule left behind, from the source data and the target: shares nothing with the gate's decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..results import Duplicate, Parked, Passed, Refused, Written
from .engine import Commit
from .source import Delivery

PROMISES = ("lost", "twice", "wrong", "misreported", "stuck")


@dataclass
class Verdict:
    """What one schedule came to. Counted over keys, as the figures of `make fire` are."""

    lost: int = 0
    twice: int = 0
    wrong: int = 0
    misreported: int = 0
    """Outcomes that do not add up to the deliveries, or do not fit the effects."""
    stuck: int = 0
    """Schedules that did not come to an end, or in which the gate raised what it should not."""
    in_window: int = 0
    """Second effects between claim and finish, which `on_replay="write"` allows."""
    excused: int = 0
    """Second effects of keys whose ledger row Redis had lost."""
    problems: list[str] = field(default_factory=list)

    @property
    def broken(self) -> str | None:
        """The first promise that broke, None if all held."""
        return next((name for name in PROMISES if getattr(self, name)), None)

    def blame(self, promise: str, by: int, why: str) -> None:
        """Count against a promise."""
        setattr(self, promise, getattr(self, promise) + by)
        self.problems.append(f"{promise}: {why}")


class Allowed(NamedTuple):
    """What the promise leaves out, by key."""

    windows: Mapping[int, int]
    """Second effects while the row was open, with `on_replay="write"`."""
    lost_rows: AbstractSet[int]
    """Redis lost the row, or set it back."""
    late_finishes: AbstractSet[int]
    """Somebody finished after lease and grace: it and whoever took over may both be told that it is written."""


class Oracle:
    """Knows what was sent, and what the promise leaves out."""

    def __init__(self, sent: Sequence[Delivery], records: Sequence[Any], allowed: Allowed, *, drops: bool) -> None:
        self._allowed = allowed
        self._sent = sent
        self._records = records
        self._drops = drops
        self._keys: dict[int, list[Delivery]] = {}
        for each in sent:
            self._keys.setdefault(each.key, []).append(each)

    def judge(self, commits: Iterable[Commit], target: Iterable[Any]) -> Verdict:
        """Compare the committed outputs and the target with what was sent."""
        verdict = Verdict()
        outcomes: dict[int, list[tuple[Delivery, Any]]] = {key: [] for key in self._keys}
        for commit in commits:
            self._add_up(commit, verdict)
            for item, outcome in commit.outcomes:
                outcomes[item.context.key].append((item.context, outcome))
        effects = self._passed(outcomes) if self._drops else self._effects(target, verdict)
        for key, sent in self._keys.items():
            self._judge_key(_Known(key, sent, effects[key], outcomes[key]), verdict)
        return verdict

    def _add_up(self, commit: Commit, verdict: Verdict) -> None:
        """Each delivery of a batch has exactly one outcome."""
        came = [item.context.at for item in commit.attempt.batch]
        went = [item.context.at for item, _ in commit.outcomes]
        if len(came) != len(went) or sorted(came) != sorted(went):
            verdict.blame("misreported", 1, f"the deliveries {came} came, outcomes were given for {went}")

    def _passed(self, outcomes: dict[int, list[tuple[Delivery, Any]]]) -> Counter[int]:
        return Counter(
            {
                key: len({each.at for each, outcome in those if isinstance(outcome, Passed)})
                for key, those in outcomes.items()
            }
        )

    def _effects(self, target: Iterable[Any], verdict: Verdict) -> Counter[int]:
        effects: Counter[int] = Counter()
        for record in target:
            delivery = self._whose(record)
            if delivery is None:
                verdict.blame("wrong", 1, f"the target holds {record!r}, which nobody sent")
            else:
                effects[delivery.key] += 1
        return effects

    def _whose(self, record: Any) -> Delivery | None:
        for delivery, known in zip(self._sent, self._records, strict=True):
            if record is known or record == known:
                return delivery
        return None

    def _judge_key(self, it: _Known, verdict: Verdict) -> None:
        second = max(0, it.effects - 1)
        if it.key in self._allowed.lost_rows:
            verdict.excused += second
            # A filter has nothing but its rows: set back twice, they may name an occurrence that was told otherwise.
            if not self._drops:
                _judge_loss(it, verdict)
            return
        _judge_loss(it, verdict)
        window = self._allowed.windows.get(it.key, 0)
        verdict.in_window += min(second, window)
        if second > window:
            verdict.blame("twice", second - window, f"k{it.key} was written {it.effects} times")
        if not window and not second:
            _judge_report(it, verdict, late=it.key in self._allowed.late_finishes)


class _Known(NamedTuple):
    key: int
    sent: Sequence[Delivery]
    effects: int
    outcomes: Sequence[tuple[Delivery, Any]]

    @property
    def parked(self) -> bool:
        return any(isinstance(outcome, Parked) for _, outcome in self.outcomes)

    @property
    def written(self) -> set[int]:
        return {each.at for each, outcome in self.outcomes if isinstance(outcome, (Written, Passed))}


def _judge_loss(it: _Known, verdict: Verdict) -> None:
    if not it.effects and not all(each.poison for each in it.sent) and not it.parked:
        verdict.blame("lost", 1, f"k{it.key} was never written, and nobody was told")


def _judge_report(it: _Known, verdict: Verdict, *, late: bool) -> None:
    """Each effect is told to one delivery, and nothing else is."""
    key, written, parked = it.key, it.written, it.parked
    if len(written) > 1 and not late:
        verdict.blame("misreported", 1, f"k{key} was reported as written for the deliveries {sorted(written)}")
    if it.effects and not written and not parked:
        verdict.blame("misreported", 1, f"k{key} was written, but no delivery was told so")
    if written and not it.effects:
        verdict.blame("misreported", 1, f"k{key} was reported as written, but is not there")
    if not written and not parked and any(isinstance(outcome, Duplicate) for _, outcome in it.outcomes):
        verdict.blame("misreported", 1, f"k{key} has duplicates of nothing")
    one_content = len({(each.content, each.poison) for each in it.sent}) == 1
    for each, outcome in it.outcomes:
        if isinstance(outcome, Refused) and not each.poison and (outcome.reason != "conflict" or one_content):
            verdict.blame("misreported", 1, f"k{key}@{each.at} was refused as {outcome.reason}")
