"""Metrics of programs without an engine, as Prometheus reads them."""

from __future__ import annotations

import importlib
from typing import Any, get_args

from ..connectors.errors import Misconfigured
from .metrics import LevelName, MetricName


class PrometheusMetrics:
    """Counters `oncesink_<name>_total` and gauges `oncesink_<name>`, with the label `scope`, from zero on.

    `OnceWriter(gate, sink, metrics=PrometheusMetrics("orders"))`, and the same for `OnceConsumer`. `registry` is one
    of prometheus_client's, by default the one of the process; one scope a registry. Raises `Misconfigured` where
    prometheus_client is missing.
    """

    def __init__(self, scope: str, *, registry: Any = None) -> None:
        client = _client()
        self._registry = client.REGISTRY if registry is None else registry
        self._scope = scope
        self._counters = {name: self._new(client.Counter, name) for name in get_args(MetricName)}
        self._gauges = {name: self._new(client.Gauge, name) for name in get_args(LevelName)}

    def count(self, name: MetricName, by: int = 1) -> None:
        self._counters[name].inc(by)

    def level(self, name: LevelName, value: int) -> None:
        self._gauges[name].set(value)

    def serve(self, port: int, address: str = "0.0.0.0") -> int:  # noqa: S104 - Prometheus asks from another machine
        """Answer `GET /metrics` in a thread of its own, for as long as the process lives; return the port."""
        server, _ = _client().start_http_server(port, address, self._registry)
        return int(server.server_port)

    def _new(self, kind: Any, name: str) -> Any:
        text = f"oncesink: {name.replace('_', ' ')}"
        return kind(f"oncesink_{name}", text, ["scope"], registry=self._registry).labels(self._scope)

    def __repr__(self) -> str:
        return f"PrometheusMetrics({self._scope!r})"


def _client() -> Any:
    try:
        return importlib.import_module("prometheus_client")
    except ModuleNotFoundError as error:
        raise Misconfigured("Prometheus needs its client: pip install 'oncesink[metrics]'") from error
