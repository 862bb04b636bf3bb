"""Two clusters for the same tests: a real broker, and the one that the client brings along to be tested with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from oncesink.connectors import forget_all

from tests.kafka.world import PARTITIONS, QUIET, Kafka
from tests.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def mock_cluster() -> Iterator[Kafka]:
    """Give the client's own mock cluster of two brokers. It lives as long as the client in which it runs.

    It waits three seconds for other members of a group, and a group whose members have left takes none any more.
    """
    host = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "-", **QUIET})
    brokers = host.list_topics(timeout=10).brokers.values()
    yield Kafka(",".join(f"{each.host}:{each.port}" for each in brokers), make_topic=lambda name: None)
    host.close()


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> Kafka:
    """Give the real broker."""
    return Kafka(
        kafka_broker.bootstrap,
        make_topic=lambda name: kafka_broker.new_topic(name, PARTITIONS),
        impatient={"session_timeout_ms": 1000, "heartbeat_interval_ms": 200, "max_poll_interval_ms": 1500},
    )


@pytest.fixture(params=["mock_cluster", "broker"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Give each of the two."""
    cluster: Kafka = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture(autouse=True)
def _empty_memory() -> None:
    """Let no test see what another one wrote."""
    forget_all()
