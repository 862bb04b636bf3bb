"""The gate's counts as metrics of Flink: `<operator>.oncesink.<scope>.<name>`, one counter a name."""

from __future__ import annotations

from typing import Any, get_args

from .metrics import Counts, MetricName, Metrics

GROUP = "oncesink"


class FlinkMetrics:
    """Counters of one operator's group. Reporters and the REST interface show them."""

    def __init__(self, group: Any) -> None:
        self._counters = {name: group.counter(name) for name in get_args(MetricName)}

    def count(self, name: MetricName, by: int = 1) -> None:
        if by:
            self._counters[name].inc(by)


def flink_metrics(context: Any, scope: str) -> Metrics:
    """Return the metrics of a function; where the job has metrics switched off, counts that nobody reads."""
    group = context.get_metrics_group()
    # PyFlink gives an empty group where `python.metric.enabled` is false, and fails on it only when it is used.
    if group is None:
        return Counts()
    return FlinkMetrics(group.add_group(GROUP, scope))
