"""One attempt at a batch by one process, as a greenlet that stands still at its I/O calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..prepare import Item
from ..results import AnyOutcome

if TYPE_CHECKING:
    from greenlet import greenlet

    from .process import Process

NEVER = float("inf")


class Died(BaseException):
    """The process dies here: no handler of errors may run, and what was applied stays."""


class Attempt:
    """A batch on its way through a gate, and how far it came with each key; without a batch, a reconciler's pass."""

    def __init__(self, number: int, process: Process, batch: Sequence[Item]) -> None:
        self.number = number
        self.process = process
        self.batch = batch
        self.at = 0
        """The point where it stands."""
        self.call_ends = NEVER
        """When the sink call that is under way has to be over."""
        self.wakes = -NEVER
        self.dead = False
        self.done = False
        self.zombie = False
        self.cut_off: frozenset[str] = frozenset()
        """Stores that it cannot reach until it ends."""
        self.inside = False
        """Whether a transaction is open."""
        self.steps: dict[bytes, int] = {}
        self.settled: list[tuple[Item, AnyOutcome]] | None = None
        self.error: BaseException | None = None
        self.strand: greenlet

    def reached(self, digests: Sequence[bytes], step: int) -> None:
        """Note the last step that was done for these keys."""
        steps = self.steps
        for digest in digests:
            steps[digest] = step

    @property
    def name(self) -> str:
        """Who it is, in a story."""
        if not self.batch:
            return "reconciler"
        return f"worker {self.process.number}{' (zombie)' if self.zombie else ''}"
