"""Whatever a schedule leaves open is one number: drawn from a seed, or given again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol


class Choices(Protocol):
    """Answers of a schedule; 0 is always the plainest: no fault, no delay, the first of several."""

    taken: list[int]

    def pick(self, options: int) -> int:
        """Return a number below `options`."""
        ...


class Drawn:
    """Choices from a seed. The same seed gives the same choices on every machine."""

    def __init__(self, seed: int) -> None:
        self.taken: list[int] = []
        self._draw: Callable[[], float] = Random(seed).random  # noqa: S311 - repeatable on purpose

    def pick(self, options: int) -> int:
        value = int(self._draw() * options)
        self.taken.append(value)
        return value


class Given:
    """Choices that were taken before, or a shortened list of them; the plainest once they have ended."""

    def __init__(self, given: Sequence[int]) -> None:
        self.taken: list[int] = []
        self._given = given

    def pick(self, options: int) -> int:
        at = len(self.taken)
        value = min(self._given[at], options - 1) if at < len(self._given) else 0
        self.taken.append(value)
        return value
