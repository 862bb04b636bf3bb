"""How full the filters are, told every now and then: it takes reading all of their bits."""

from __future__ import annotations

from collections.abc import Iterable

from ..connectors.clock import Clock, SystemClock
from .membership import MembershipFilter
from .membership.levels import tell
from .metrics import Metrics

EVERY_SECONDS = 60.0


class FilterWatch:
    """Tell a worker's filters as levels."""

    def __init__(self, metrics: Metrics, clock: Clock | None = None) -> None:
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._next = float("-inf")

    def look(self, filters: Iterable[MembershipFilter]) -> None:
        """Tell, if it is time to."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_SECONDS
        tell([each.occupancy() for each in filters], self._metrics)
