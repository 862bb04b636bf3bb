"""The crash table as data: what was done last, in which situation it comes again, and what cannot occur.

A cell is counted when an attempt ended after a step (it died, gave up, was given up, or was rolled back) and one of its
deliveries was brought again in a situation; for `REPLY_LOST` when the reply to the step was lost.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache


class Kind(IntEnum):
    """The columns."""

    DROP = 0
    TRANSACTIONAL = 1
    DROPS_BY_KEY = 2
    WRITE = 3
    PROBE = 4
    PARK = 5
    REDIS = 6

    @property
    def label(self) -> str:
        return _KINDS[self]

    @property
    def leases(self) -> bool:
        """Whether its rows are open for a while."""
        return self not in {Kind.DROP, Kind.TRANSACTIONAL}


class Step(IntEnum):
    """What was done last for a delivery."""

    ARRIVED = 0
    FILTER_ASKED = 1
    CACHE_ASKED = 2
    CLAIMED = 3
    WRITTEN = 4
    FINISHED = 5
    CACHE_FILLED = 6
    FILTER_FILLED = 7

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


class Situation(IntEnum):
    """How it is brought again."""

    SAME_WORKER = 0
    ANOTHER_WORKER = 1
    ZOMBIE = 2
    OLDER_STATE = 3
    ANOTHER_ORDER = 4
    REDIS_LOST = 5
    REDIS_OLD_COPY = 6
    REPLY_LOST = 7
    LEASE_OVER = 8
    DUPLICATE_ELSEWHERE = 9
    RECONCILER = 10

    @property
    def label(self) -> str:
        return _SITUATIONS[self]


_KINDS = {
    Kind.DROP: "`DropDuplicates`",
    Kind.TRANSACTIONAL: "transactional",
    Kind.DROPS_BY_KEY: "drops by key",
    Kind.WRITE: "external, `write`",
    Kind.PROBE: "external, `probe`",
    Kind.PARK: "external, `park`",
    Kind.REDIS: "Redis as ledger",
}
_SITUATIONS = {
    Situation.SAME_WORKER: "same worker again",
    Situation.ANOTHER_WORKER: "another worker",
    Situation.ZOMBIE: "a live zombie beside it",
    Situation.OLDER_STATE: "older engine state",
    Situation.ANOTHER_ORDER: "batch in another order",
    Situation.REDIS_LOST: "Redis lost",
    Situation.REDIS_OLD_COPY: "Redis from an old copy",
    Situation.REPLY_LOST: "reply lost",
    Situation.LEASE_OVER: "lease over",
    Situation.DUPLICATE_ELSEWHERE: "duplicate in flight elsewhere",
    Situation.RECONCILER: "reconciler at work",
}

_LOCAL = {Step.ARRIVED, Step.FILTER_ASKED, Step.FILTER_FILLED}
_OPEN = {Step.CLAIMED, Step.WRITTEN}
_SIZES = (len(Kind), len(Step), len(Situation))


def impossible(kind: Kind, step: Step, situation: Situation) -> str | None:
    """Return why a cell cannot occur, None if it can."""
    if kind is Kind.DROP and step in {Step.WRITTEN, Step.FINISHED}:
        return "its row is inserted finished by the claim, and it writes nothing itself"
    if situation is Situation.REPLY_LOST and step in _LOCAL:
        return "nothing was sent: the step stays within the process"
    if situation in {Situation.LEASE_OVER, Situation.RECONCILER}:
        if not kind.leases:
            return "its rows are inserted finished: there is no lease and nothing is left open"
        if step not in _OPEN:
            return "there is no open row: not yet, or not any more"
    return None


class Cells:
    """How often each cell occurred."""

    def __init__(self) -> None:
        self.counts = [0] * (_SIZES[0] * _SIZES[1] * _SIZES[2])

    def count(self, kind: int, step: int, situation: int) -> None:
        """Count one."""
        self.counts[(kind * _SIZES[1] + step) * _SIZES[2] + situation] += 1

    def __getitem__(self, cell: tuple[int, int, int]) -> int:
        kind, step, situation = cell
        return self.counts[(kind * _SIZES[1] + step) * _SIZES[2] + situation]

    def add(self, other: Cells) -> None:
        """Add the counts of another run."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]

    def rarest(self, *kinds: Kind) -> tuple[int, tuple[Kind, Step, Situation]]:
        """Return the least count over the possible cells of some kinds, of all if none is named, and whose it is."""
        return min((self[cell], cell) for cell in possible() if not kinds or cell[0] in kinds)


@cache
def possible() -> tuple[tuple[Kind, Step, Situation], ...]:
    """Return the cells that can occur."""
    return tuple(
        (kind, step, situation)
        for kind in Kind
        for step in Step
        for situation in Situation
        if impossible(kind, step, situation) is None
    )
