"""A sink whose client is not installed says what to install."""

import sys

import pytest
from oncesink.connectors.contract import Scope, Sink, Use
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.http_sink import HttpSink
from oncesink.connectors.kafka_sink import KafkaSink
from oncesink.connectors.redis_sink import RedisSink


@pytest.mark.parametrize(
    ("module", "extra", "sink"),
    [
        ("httpcore", "http", HttpSink("https://shop/")),
        ("anyio", "http", HttpSink("https://shop/")),
        ("confluent_kafka", "kafka", KafkaSink("h:9092", "t")),
        ("redis", "redis", RedisSink("redis://h", key="{id}", remembers=None)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_names_the_extra(monkeypatch: pytest.MonkeyPatch, module: str, extra: str, sink: Sink) -> None:
    """When it is opened, and not before."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Misconfigured, match=rf"pip install 'oncesink\[{extra}\]'"):
        sink.open(Scope(name="s", use=Use.WRITE), None)
