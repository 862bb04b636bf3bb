"""How full filters are, as levels of a job's metrics."""

from __future__ import annotations

from collections.abc import Sequence

from ..metrics import Metrics
from .contract import Occupancy


def tell(found: Sequence[Occupancy], metrics: Metrics) -> None:
    """Tell what some filters came to: the fullest, the worst error rate, the shortest window."""
    if not found:
        return
    metrics.level("filter_fill_percent", round(100 * max(each.fill for each in found)))
    metrics.level("filter_used_percent", round(100 * max(each.used for each in found)))
    metrics.level("filter_error_ppm", round(1e6 * max(each.estimated_error_rate for each in found)))
    metrics.level("filter_generations", max(each.generations for each in found))
    windows = [each.window_seconds for each in found if each.window_seconds is not None]
    if windows:
        metrics.level("filter_window_seconds", round(min(windows)))
