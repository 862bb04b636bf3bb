"""What Prometheus reads of a program without an engine."""

from __future__ import annotations

from typing import get_args
from urllib.request import urlopen

import pytest

pytest.importorskip("prometheus_client")

from oncesink.transforms import MetricName, PrometheusMetrics
from prometheus_client import CollectorRegistry


def test_every_count_is_there_from_zero_on_and_served() -> None:
    """A counter that was never raised is 0, not absent: alarms on its growth work from the first time on."""
    metrics = PrometheusMetrics("orders", registry=CollectorRegistry())
    metrics.count("written", 3)
    metrics.count("written")
    metrics.level("filter_fill_percent", 12)
    port = metrics.serve(0, "127.0.0.1")
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert 'oncesink_written_total{scope="orders"} 4.0' in lines
    assert 'oncesink_filter_fill_percent{scope="orders"} 12.0' in lines
    assert {
        f'oncesink_{name}_total{{scope="orders"}} 0.0' for name in get_args(MetricName) if name != "written"
    } <= set(lines)
