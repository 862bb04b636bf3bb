"""A circuit breaker: what failed is left alone for a pause that grows, so that a dead server costs one time-out."""

from __future__ import annotations

from .clock import Clock
from .errors import Unavailable


class Breaker:
    """Closed until a call fails, then open for a pause, then half-open: the next call decides. For one thread."""

    def __init__(self, what: str, *, first_seconds: float, longest_seconds: float, clock: Clock) -> None:
        self._what = what
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._pause_seconds = 0.0
        self._open_until = float("-inf")

    @property
    def left_seconds(self) -> float:
        """Return how long no call may be made; 0 if one may."""
        return max(0.0, self._open_until - self._clock.monotonic())

    def check(self) -> None:
        """Return if a call may be made. Raises `Unavailable` at once while the breaker is open."""
        left = self.left_seconds
        if left > 0:
            raise Unavailable(f"{self._what} failed lately and is left alone", retry_after_seconds=left)

    def failed(self) -> None:
        """Open, for twice as long as the last time if no call succeeded since."""
        self._pause_seconds = min(max(self._pause_seconds * 2, self._first_seconds), self._longest_seconds)
        self._open_until = self._clock.monotonic() + self._pause_seconds

    def succeeded(self) -> None:
        """Close."""
        self._pause_seconds = 0.0
        self._open_until = float("-inf")

    def __repr__(self) -> str:
        left = self.left_seconds
        return f"<{type(self).__name__} {self._what} {f'open for {left:.1f} s' if left else 'closed'}>"
