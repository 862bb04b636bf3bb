"""The suite on librdkafka's own mock of a cluster, and what needs no broker at all; `tests/kafka` has a real one."""

import itertools
import pickle
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from oncesink.connectors.contract import Outcome
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.kafka_producer import judge
from oncesink.connectors.kafka_sink import KafkaSink
from oncesink.connectors.secret import Secret

from tests.contract.outside_contract import SCOPE, write
from tests.kafka.kafka_sink_contract import KafkaSinkContract

TOPICS = itertools.count()
PASSWORD = "p4ss/of:the@broker"


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """Run a mock of a cluster as long as its producer lives; return its address."""
    producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    producer.flush(1)


class TestKafkaSinkOnAMock(KafkaSinkContract):
    """A topic of one partition."""

    @pytest.fixture(autouse=True)
    def new_topic(self, mock_cluster: str) -> None:
        """Give each test a topic of its own: the mock makes it when it is asked for."""
        self.bootstrap, self.topic = mock_cluster, f"suite-{next(TOPICS)}"
        Producer({"bootstrap.servers": self.bootstrap}).list_topics(self.topic, timeout=10)


class Reported:
    """An error as a delivery report has it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        """Return its name."""
        return self._name


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("_MSG_TIMED_OUT", Outcome.UNKNOWN),
        ("_PURGE_QUEUE", Outcome.UNKNOWN),
        ("_PURGE_INFLIGHT", Outcome.UNKNOWN),
        ("_TRANSPORT", Outcome.UNKNOWN),
        ("_FATAL", Outcome.UNKNOWN),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", Outcome.UNKNOWN),
        ("NOT_ENOUGH_REPLICAS", Outcome.UNAVAILABLE),
        ("TOPIC_AUTHORIZATION_FAILED", Outcome.UNAVAILABLE),
        ("MSG_SIZE_TOO_LARGE", Outcome.REJECTED),
        ("SOMETHING_NEW", Outcome.UNKNOWN),
    ],
)
def test_a_report_is_taken_for_what_it_proves(name: str, outcome: Outcome) -> None:
    """What was accepted and is not known to be missing may be there."""
    assert judge(Reported(name)).outcome is outcome


def test_a_broker_that_is_not_there_is_said_in_time() -> None:
    """At start; nothing was sent."""
    sink = KafkaSink("127.0.0.1:1", "t", timeout=timedelta(seconds=1))
    began = time.monotonic()
    with pytest.raises(Unavailable, match="does not answer"):
        sink.open(SCOPE, None)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"bootstrap": ""}, "addresses"),
        ({"topic": ""}, "topic"),
        ({"key": "orders"}, "the same for each record"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"settings": {"acks": 1, "enable.idempotence": False}}, "acks, enable.idempotence"),
        ({"settings": {"transactional.id": "x"}}, "transactional.id"),
        ({"settings": {"sasl.password": PASSWORD}}, "Secret"),
        ({"settings": {"ssl.key.password": PASSWORD}}, "Secret"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], match: str) -> None:
    """With their names, and without what is secret."""
    with pytest.raises(Misconfigured, match=match) as caught:
        KafkaSink(**{"bootstrap": "h:9092", "topic": "t", **settings})
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_settings_that_the_client_refuses_are_said_at_start() -> None:
    """Without the values of secrets, wherever the client puts them."""
    settings = {"sasl.password": Secret.literal(PASSWORD), "security.protocol": Secret.literal(PASSWORD)}
    sink = KafkaSink("h:9092", "t", settings=settings)
    with pytest.raises(Misconfigured, match="refused") as caught:
        sink.open(SCOPE, None)
    shown = "".join(traceback.format_exception(caught.value))
    assert PASSWORD not in shown + repr(sink) + sink.target


def test_a_secret_stays_out_of_the_pickle() -> None:
    """Only the place where it is travels."""
    sink = KafkaSink("h:9092", "t", settings={"sasl.password": Secret.env("KAFKA_PASSWORD")})
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_the_name_of_the_cluster_stands_in_the_scope() -> None:
    """Where it has one: then brokers may be added to the address."""
    assert KafkaSink("h:9092", "t").target == "Kafka h:9092 topic t"
    assert KafkaSink("h:9092,i:9092", "t", cluster="shop").target == "Kafka shop topic t"


def test_a_queue_that_is_full_is_emptied_and_waited_for(mock_cluster: str) -> None:
    """A batch may be larger than the queue of the client."""
    topic = f"queue-{next(TOPICS)}"
    Producer({"bootstrap.servers": mock_cluster}).list_topics(topic, timeout=10)
    sink = KafkaSink(mock_cluster, topic, settings={"queue.buffering.max.messages": 5})
    with closing(sink.open(SCOPE, None)) as session:
        answers = session.write([write(str(number)) for number in range(40)], timeout_seconds=10.0)
    assert {each.outcome for each in answers} == {Outcome.WRITTEN}
