"""How full the filters are, told every now and then: it takes reading all of their bits."""

from __future__ import annotations

from collections.abc import Iterable

from ..connectors.clock import Clock, SystemClock
from .membership import MembershipFilter, Occupancy
from .metrics import Metrics

EVERY_SECONDS = 60.0


class FilterWatch:
    """Tell a worker's filters as levels: the fullest of them, the worst error rate, the shortest window."""

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


def tell(found: list[Occupancy], metrics: Metrics) -> None:
    """Tell what the filters of one worker came to."""
    if not found:
        return
    metrics.level("filter_fill_percent", round(100 * max(each.fill for each in found)))
    metrics.level("filter_used_percent", round(100 * max(each.used for each in found)))
    metrics.level("filter_error_ppm", round(1e6 * max(each.estimated_error_rate for each in found)))
    metrics.level("filter_generations", max(each.generations for each in found))
    windows = [each.window_seconds for each in found if each.window_seconds is not None]
    if windows:
        metrics.level("filter_window_seconds", round(min(windows)))
