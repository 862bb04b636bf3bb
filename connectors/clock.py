"""The process's own clock, behind an interface, so that tests and simulations can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What waits and deadlines are measured with."""

    def monotonic(self) -> float:
        """Seconds, from an arbitrary start, that never go back."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when it is told to, or when somebody sleeps."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)
