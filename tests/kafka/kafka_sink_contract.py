"""What a topic holds, read behind the library's back; and the suite on it."""

import json
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from oncesink.connectors.contract import Sink
from oncesink.connectors.errors import Rejected
from oncesink.connectors.kafka_sink import KafkaSink

from tests.contract.outside_contract import BAD, SECONDS, OutsideContract, write


def messages(bootstrap: str, topic: str) -> list[Message]:
    """Return the committed messages of a topic, partition by partition, up to where it ends now."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
    }
    found: list[Message] = []
    with closing(Consumer(settings)) as consumer:
        for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
            found += _partition(consumer, TopicPartition(topic, number, 0))
    return found


def _partition(consumer: Consumer, place: TopicPartition) -> list[Message]:
    _, end = consumer.get_watermark_offsets(place, timeout=20)
    consumer.assign([place])
    found: list[Message] = []
    while end > 0 and (not found or (found[-1].offset() or 0) < end - 1):
        found += consumer.consume(1000, timeout=0.2)
    return found


def one_place(record: Any) -> bytes:
    """Make the key of a record: equal ones go to one partition, in order."""
    return b"one"


def refusing(record: Any) -> bytes:
    """Make the value of a record, and refuse one."""
    if record == BAD:
        raise Rejected("refused", "it is bad")
    return json.dumps(record).encode()


class KafkaSinkContract(OutsideContract):
    """The suite; each subclass gives `bootstrap` and an empty `topic`."""

    bootstrap: str
    topic: str

    def make(self) -> Sink:
        """Return the recipe."""
        return KafkaSink(self.bootstrap, self.topic, key=one_place, value=refusing)

    def effects(self) -> list[Any]:
        """Return the values."""
        return [json.loads(each.value() or b"") for each in messages(self.bootstrap, self.topic)]

    def test_each_message_bears_its_key_and_the_digest(self) -> None:
        """Readers can drop by the header what came twice."""
        sink = KafkaSink(self.bootstrap, self.topic, key="{id}")
        with closing(self.open(sink)) as session:
            session.write([write("a")], timeout_seconds=SECONDS)
        (message,) = messages(self.bootstrap, self.topic)
        assert message.key() == b"a"
        assert message.headers() == [("idempotency-key", write("a").idempotency_key.encode())]

    def test_a_record_that_is_too_large_is_refused_alone(self) -> None:
        """Before it is sent."""
        with closing(self.open()) as session:
            answers = session.write([write("a"), write("x" * 2_000_000), write("b")], timeout_seconds=SECONDS)
        assert [each.reason for each in answers if each.outcome.value == "rejected"] == ["too_large"]
        assert self.effects() == [{"id": "a"}, {"id": "b"}]
