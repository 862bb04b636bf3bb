"""The broker that all other tests of this folder stand on, and what is said where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests import maven
from tests.kafka.world import Kafka
from tests.kafka_broker import KafkaBroker
from tests.servers import ServerMissing

ROOT = Path(__file__).resolve().parents[2]


def test_a_broker_keeps_what_it_acknowledged_through_a_kill(kafka_broker: KafkaBroker) -> None:
    """Messages and the offsets of a group are there when it has come back, under the same address."""
    topic = kafka_broker.new_topic("kept")
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    producer.produce(topic, b"one")
    assert producer.flush(10) == 0
    settings = {"bootstrap.servers": kafka_broker.bootstrap, "group.id": "kept", "auto.offset.reset": "error"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    kafka_broker.kill()
    kafka_broker.start()
    (message,) = consumer.consume(1, timeout=20)
    assert message.value() == b"one"
    consumer.close()
    assert Kafka(kafka_broker.bootstrap, make_topic=kafka_broker.new_topic).committed(topic) == 1


def test_without_maven_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives that are not in the cache need the client, by the name of its package."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissing, match="mvn is not installed: install the package maven"):
        maven.archives("org.example:nothing:1.0")


def test_a_run_without_a_broker_counts_what_it_did_not_test(tmp_path: Path) -> None:
    """The gap stands at the end of the output, with its number and its reason, in CI as well."""
    (tmp_path / "java").symlink_to("/bin/true")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path), "CI": "true"}
    test = f"{__file__}::test_a_broker_keeps_what_it_acknowledged_through_a_kill"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "NOT TESTED: 1 tests on a Kafka broker: no Kafka broker: mvn is not installed" in done.stdout
