"""The suite on a topic of a real broker, and what happens to a batch while the broker is in trouble."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import closing, suppress

import pytest
from oncesink.connectors.contract import Answer, Outcome, SinkSession
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.faults import Fault
from oncesink.connectors.kafka_sink import KafkaSink

from tests.contract.outside_contract import SCOPE, write
from tests.kafka.kafka_sink_contract import KafkaSinkContract, messages, one_place
from tests.kafka_broker import KafkaBroker
from tests.unit.scene import LEASE_SECONDS, Scene, record

TOPICS = itertools.count()


class TestKafkaSink(KafkaSinkContract):
    """A topic of one partition on a real broker."""

    @pytest.fixture(autouse=True)
    def new_topic(self, kafka_broker: KafkaBroker) -> None:
        """Give each test a topic of its own."""
        self.bootstrap, self.topic = kafka_broker.bootstrap, kafka_broker.new_topic(f"sink-{next(TOPICS)}")


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> str:
    """Make an empty topic."""
    return kafka_broker.new_topic(f"sink-{next(TOPICS)}")


def test_a_broker_that_is_silent_leaves_a_batch_in_doubt_and_in_time(kafka_broker: KafkaBroker, topic: str) -> None:
    """It may have been appended: here it was, each message at most once, and the answer did not lie."""
    sink = KafkaSink(kafka_broker.bootstrap, topic, key=one_place, value=Pausing(kafka_broker))
    with closing(sink.open(SCOPE, None)) as session:
        began = time.monotonic()
        answers = session.write([write(str(number)) for number in range(5)], timeout_seconds=3.0)
        assert time.monotonic() - began < 5
        kafka_broker.resume()
        assert {each.outcome for each in answers} == {Outcome.UNKNOWN}
        after = until_written(session, "after")
    assert [each.outcome for each in after] == [Outcome.WRITTEN]
    ids = [json.loads(each.value() or b"")["id"] for each in messages(kafka_broker.bootstrap, topic)]
    assert len(ids) == len(set(ids))
    assert "after" in ids


class Pausing:
    """A value of a record that stops the broker when it is first made: behind the look at the topic."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker: KafkaBroker | None = broker

    def __call__(self, record: object) -> bytes:
        """Make the value."""
        if self.broker is not None:
            self.broker.pause()
            self.broker = None
        return json.dumps(record).encode()


def test_a_broker_that_is_away_before_the_batch_has_nothing_of_it(kafka_broker: KafkaBroker, topic: str) -> None:
    """It is asked before anything is queued, so the batch stays certain, and goes through once it is back."""
    with closing(KafkaSink(kafka_broker.bootstrap, topic).open(SCOPE, None)) as session:
        kafka_broker.pause()
        with pytest.raises(Unavailable, match="does not answer"):
            session.write([write("a")], timeout_seconds=2.0)
        kafka_broker.revive()
        assert [each.outcome for each in until_written(session, "a")] == [Outcome.WRITTEN]
    assert len(messages(kafka_broker.bootstrap, topic)) == 1


def until_written(session: SinkSession, name: str) -> list[Answer]:
    """Write as a gate does: again, while it is told that nothing was applied; a broker that was away needs a moment."""
    deadline = time.monotonic() + 30
    answers: list[Answer] = []
    while not answers and time.monotonic() < deadline:
        with suppress(Unavailable):
            answers = list(session.write([write(name)], timeout_seconds=10.0))
    return answers


def test_a_topic_that_is_missing_is_said_at_start(kafka_broker: KafkaBroker) -> None:
    """And is not made by asking for it."""
    with pytest.raises(Misconfigured, match="no-such-topic"):
        KafkaSink(kafka_broker.bootstrap, "no-such-topic").open(SCOPE, None)


def test_behind_a_gate_a_lost_reply_is_written_again_under_the_same_key(kafka_broker: KafkaBroker, topic: str) -> None:
    """After the lease, with `write`: readers can drop by the header what came twice."""
    sink = KafkaSink(kafka_broker.bootstrap, topic)
    scene = Scene("external", {"on_replay": "write"}, make_sink=lambda _: sink)
    scene.on("sink", "write", Fault.LOSE_REPLY)
    results = scene.write(record("a"))
    assert len(results.written) == 1
    assert scene.clock.now > LEASE_SECONDS
    found = messages(kafka_broker.bootstrap, topic)
    assert [len(found), len({tuple(each.headers() or ()) for each in found})] == [2, 1]


@pytest.mark.parametrize("bad", ["raises", "no bytes"])
def test_a_function_that_fails_for_one_record_leaves_no_part_of_a_batch_sent(
    kafka_broker: KafkaBroker, topic: str, bad: str
) -> None:
    """The record is refused, the others are there once; else those before it would be sent at each attempt."""
    sink = KafkaSink(kafka_broker.bootstrap, topic, value=without_a)
    scene = Scene("external", {"on_replay": "write"}, make_sink=lambda _: sink)
    results = scene.write(record("A", 0), record(bad, 1), record("B", 2))
    assert [each.reason for each in results.rejected] == ["wrong_type"]
    assert len(results.written) == 2
    assert sorted(each.value() or b"" for each in messages(kafka_broker.bootstrap, topic)) == [b"A", b"B"]


def without_a(record: dict[str, str]) -> str:
    """Make a value of all but two records."""
    made: dict[str, object] = {"A": "A", "B": "B", "no bytes": 7}
    return made[record["id"]]  # type: ignore[return-value]


def test_a_trouble_that_is_not_the_records_keeps_that_one_back(kafka_broker: KafkaBroker, topic: str) -> None:
    """Nothing of it was sent, so it may be tried again; the others are."""
    sink = KafkaSink(kafka_broker.bootstrap, topic, value=looked_up)
    with closing(sink.open(SCOPE, None)) as session:
        answers = session.write([write("a"), write("b")], timeout_seconds=3.0)
    assert [each.outcome for each in answers] == [Outcome.WRITTEN, Outcome.UNAVAILABLE]
    assert "raised OSError: no route" in answers[1].detail
    assert len(messages(kafka_broker.bootstrap, topic)) == 1


def looked_up(record: dict[str, str]) -> str:
    """Fail for the second record, as a look-up elsewhere does."""
    if record["id"] != "a":
        raise OSError("no route")
    return record["id"]
