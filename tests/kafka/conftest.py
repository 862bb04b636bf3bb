"""Two clusters for the same tests: a real broker, and the one that the client brings along to be tested with."""

from __future__ import annotations

import pytest
from oncesink.connectors import forget_all

from tests.kafka.world import PARTITIONS, Kafka
from tests.kafka_broker import KafkaBroker


@pytest.fixture
def mock_cluster(mock_kafka: str) -> Kafka:
    """Give the client's own mock cluster."""
    return Kafka(mock_kafka, make_topic=lambda name: None)


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
