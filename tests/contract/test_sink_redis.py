"""The suite on values in a real Redis."""

import itertools
import json
import time
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
import redis
from oncesink.connectors.conformance import examine
from oncesink.connectors.contract import ALREADY, WRITTEN, Answer, Outcome, Sink, SinkKind, Write
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Rejected, Unavailable
from oncesink.connectors.redis_sink import RedisSink

from tests.contract.outside_contract import BAD, SCOPE, SECONDS, OutsideContract, write
from tests.servers import RedisServer

SHORT = timedelta(milliseconds=200)


def listed(record: Any) -> bytes:
    """Make the value of one record, and refuse one."""
    if record == BAD:
        raise Rejected("refused", "it is bad")
    return json.dumps(record).encode()


class TestRedisSink(OutsideContract):
    """Whose marks recognise a second write."""

    kind = SinkKind.DROPS_BY_KEY

    @pytest.fixture(autouse=True)
    def server(self, redis_server: RedisServer) -> None:
        """Give an empty Redis."""
        self.redis = redis_server

    def make(self, **settings: Any) -> Sink:
        """Return the recipe."""
        chosen = {"key": "{id}", "value": listed, "remembers": timedelta(hours=1), **settings}
        return RedisSink(self.redis.url, **chosen)

    def effects(self) -> list[Any]:
        """Return the values; nothing tells in which order they came."""
        with closing(redis.Redis.from_url(self.redis.url)) as client:
            keys = sorted(key for key in client.scan_iter() if not key.startswith(b"oncesink:"))
            return [json.loads(client.get(key) or b"") for key in keys]

    def apply(self, *names: str) -> Any:
        """Write records of these ids, and close the connection again."""
        with closing(self.open()) as session:
            return session.write([write(name) for name in names], timeout_seconds=SECONDS)

    def test_writes_are_answered_in_order_and_applied(self) -> None:
        """Each record is one value."""
        assert list(self.apply("b", "a")) == [WRITTEN, WRITTEN]
        assert self.effects() == [{"id": "a"}, {"id": "b"}]

    def test_the_kit_for_sinks_finds_no_flaw(self) -> None:
        """Killed clients included."""
        records = ({"id": f"r{number}"} for number in itertools.count())
        report = examine(self.make(), records=records, read_back=self.effects, kills=1, bad=[BAD], grace=SHORT)
        assert report.clean, str(report)
        assert (report.survives, report.drops_by_key, report.concurrent, report.whole_key) == (True,) * 4

    def value_of(self, *writes: Write, **settings: Any) -> list[Answer]:
        """Write these."""
        with closing(self.open(self.make(**settings))) as session:
            return list(session.write(writes, timeout_seconds=SECONDS))

    def test_a_replay_of_an_older_value_does_not_come_back_over_a_newer_one(self) -> None:
        """Which an upsert alone would do."""
        old, new = Write({"id": "a", "v": 1}, b"1" * 16, b"one"), Write({"id": "a", "v": 2}, b"2" * 16, b"two")
        assert self.value_of(old, new) == [WRITTEN, WRITTEN]
        assert self.value_of(old) == [ALREADY._replace(occurrence=b"one")]
        assert self.effects() == [{"id": "a", "v": 2}]

    def test_fields_go_beside_those_that_are_there(self) -> None:
        """By HSET; numbers become their text."""
        self.value_of(Write({"id": "h", "a": 1}, b"1" * 16, None), value=dict)
        self.value_of(Write({"id": "h", "b": b"\xff"}, b"2" * 16, None), value=dict)
        with closing(redis.Redis.from_url(self.redis.url)) as client:
            assert client.hgetall("h") == {b"id": b"h", b"a": b"1", b"b": b"\xff"}

    def test_a_key_of_another_kind_is_refused_and_leaves_no_mark(self) -> None:
        """The others go on, and the record can be written once the key is free."""
        with closing(redis.Redis.from_url(self.redis.url)) as client:
            client.rpush("a", "x")
            answers = self.value_of(write("a"), write("b"), value=dict)
            assert [each.outcome for each in answers] == [Outcome.REJECTED, Outcome.WRITTEN]
            client.delete("a")
        assert self.value_of(write("a"), value=dict) == [WRITTEN]

    def test_values_and_marks_expire_by_their_own_times(self) -> None:
        """Both are bounded, where a bound was given."""
        self.value_of(write("a"), ttl=timedelta(seconds=50), remembers=timedelta(seconds=500))
        self.value_of(write("b"), remembers=None)
        with closing(redis.Redis.from_url(self.redis.url)) as client:
            mark = b"oncesink:w:" + write("a").digest
            assert 45 < int(client.ttl("a")) <= 50
            assert 450 < int(client.ttl(mark)) <= 500
            assert client.ttl(b"oncesink:w:" + write("b").digest) == -1

    def test_a_full_server_applies_nothing(self) -> None:
        """Neither value nor mark; it is a passing trouble."""
        with closing(self.open()) as session, closing(redis.Redis.from_url(self.redis.url)) as client:
            client.config_set("maxmemory", "1mb")
            client.config_set("maxmemory", "1")
            outcomes = self.tried(session)
            client.config_set("maxmemory", "0")
            assert outcomes == [Outcome.UNAVAILABLE, Outcome.UNAVAILABLE]
            assert [a.outcome for a in session.write([write("a")], timeout_seconds=SECONDS)] == [Outcome.WRITTEN]

    def tried(self, session: Any) -> list[Outcome]:
        """Write two records, whatever form the refusal has."""
        try:
            return [each.outcome for each in session.write([write("a"), write("b")], timeout_seconds=SECONDS)]
        except Unavailable:
            return [Outcome.UNAVAILABLE, Outcome.UNAVAILABLE]

    @pytest.mark.parametrize(
        ("record", "reason"),
        [({"id": None}, "no_key"), ({"id": 1.5}, "wrong_type"), ({"id": "\ud800"}, "not_unicode"), (b"{", "not_json")],
    )
    def test_a_record_without_a_key_is_refused(self, record: Any, reason: str) -> None:
        """Never one shared key."""
        answers = self.value_of(Write(record, b"1" * 16, None), write("b"), value=None)
        assert [each.outcome for each in answers] == [Outcome.REJECTED, Outcome.WRITTEN]
        assert answers[0].reason == reason

    def test_a_server_that_may_evict_marks_is_refused(self) -> None:
        """A mark that is gone is a value that is written twice."""
        with closing(redis.Redis.from_url(self.redis.url)) as client:
            client.config_set("maxmemory", "100mb")
            client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(Misconfigured, match="noeviction"):
            self.open()

    @pytest.mark.parametrize(
        ("settings", "match"),
        [
            ({"key": "orders"}, "the same for each record"),
            ({"key": "{id!r}"}, "without a format"),
            ({"remembers": timedelta(0)}, "remembers"),
            ({"ttl": timedelta(0)}, "ttl"),
            ({"prefix": ""}, "prefix"),
        ],
    )
    def test_settings_that_cannot_be_are_refused(self, settings: dict[str, Any], match: str) -> None:
        """With the setting's name."""
        with pytest.raises(Misconfigured, match=match):
            self.make(**settings)

    def test_without_a_ledger_it_registers_the_scope(self) -> None:
        """Its id is the namespace of a cache, the same for every worker."""
        with closing(self.make().open(SCOPE, None)) as one, closing(self.make().open(SCOPE, None)) as other:
            assert one.store_id is not None
            assert one.store_id == other.store_id

    def test_a_server_that_is_silent_is_given_up_in_time_and_found_again(self) -> None:
        """The lost reply leaves one effect, whether the call had been applied or not."""
        sink = self.make(timeout=timedelta(seconds=2))
        with closing(self.open(sink)) as session:
            self.redis.pause()
            began = time.monotonic()
            with pytest.raises((OutcomeUnknown, Unavailable)):
                session.write([write("a")], timeout_seconds=2.0)
            assert time.monotonic() - began < 4
            self.redis.resume()
            (answer,) = session.write([write("a")], timeout_seconds=2.0)
        assert answer in (WRITTEN, ALREADY)
        assert self.effects() == [{"id": "a"}]
