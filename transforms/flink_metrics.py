"""The gate's counts as metrics of Flink: `<operator>.oncesink.<scope>.<name>`, one counter a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from pyflink.fn_execution.metrics.process.metric_impl import GenericMetricGroup

from .metrics import Counts, LevelName, MetricName, Metrics

GROUP = "oncesink"


class FlinkMetrics:
    """Counters of one operator's group; in process mode also gauges: `waiting`, and the levels."""

    def __init__(self, group: Any, waiting: Callable[[], int]) -> None:
        self._counters = {name: group.counter(name) for name in get_args(MetricName)}
        self._waiting = waiting
        self._levels: dict[LevelName, int] = {}
        self._untold: Counter[MetricName] = Counter()
        # In process mode PyFlink loses what is counted in a timer: no operation is current there. It asks for gauges at
        # the end of each bundle, where one is.
        self._at_once = not isinstance(group, GenericMetricGroup)
        if not self._at_once:
            group.gauge("waiting", self._tell)
            for name in get_args(LevelName):
                group.gauge(name, partial(self._levels.get, name, 0))

    def count(self, name: MetricName, by: int = 1) -> None:
        if by and self._at_once:
            self._counters[name].inc(by)
        elif by:
            self._untold[name] += by

    def level(self, name: LevelName, value: int) -> None:
        self._levels[name] = value

    def _tell(self) -> int:
        for name, by in self._untold.items():
            self._counters[name].inc(by)
        self._untold.clear()
        return self._waiting()


def flink_metrics(context: Any, scope: str, waiting: Callable[[], int]) -> Metrics:
    """Return the metrics of a function, where `waiting` tells how many records it holds back.

    Where the job has metrics switched off (`python.metric.enabled`) there is no group, and counts go nowhere.
    """
    group = context.get_metrics_group()
    return Counts() if group is None else FlinkMetrics(group.add_group(GROUP, scope), waiting)
