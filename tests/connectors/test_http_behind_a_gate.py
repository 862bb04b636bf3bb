"""A service over HTTP behind a gate: what it meets when replies are lost, and what it never hears of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any

import pytest
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import Sink
from oncesink.connectors.errors import Misconfigured, RecordsRejected, Unavailable
from oncesink.connectors.http_sink import HttpSink
from oncesink.connectors.kafka_sink import KafkaSink
from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.redis_sink import RedisSink
from oncesink.transforms import Fields, Gate, OnceWriter, Refused, SourcePosition
from oncesink.transforms.gate import write_rules
from oncesink.transforms.retry import Immediately

from tests.http_service import Does, Says, Service, http_service
from tests.unit.scene import LEASE_SECONDS, Scene, keys, record

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def service() -> Iterator[Service]:
    """Run a service for one test."""
    with http_service() as running:
        yield running


def scene_of(service: Service, *, on_replay: str, **settings: Any) -> Scene:
    """Return a scene whose sink is the service."""
    sink = HttpSink(service.url, in_flight=1, request_timeout=timedelta(seconds=1), **settings)
    kind = "external" if sink.remembers is None else "drops_by_key"
    return Scene(kind, {"on_replay": on_replay}, make_sink=lambda _: sink)  # type: ignore[arg-type]


@pytest.mark.parametrize("does", [Does.LOSE_REPLY, Does.HANG_APPLIED, Does.CUT_BODY])
def test_where_keys_are_honoured_a_lost_reply_is_asked_for_again_at_once(service: Service, does: Does) -> None:
    """One effect, nobody waits, and the record comes out as replayed."""
    service.honours_keys = True
    service.script.append(does)
    scene = scene_of(service, remembers=DAY, on_replay="write")
    (written,) = scene.write(record("A")).written
    assert written.replayed
    assert [each["id"] for each in service.effects] == ["A"]
    assert scene.clock.now == 0.0
    first, again = (headers["Idempotency-Key"] for _, _, headers in service.requests)
    assert first == again


@pytest.mark.parametrize(("does", "requests"), [(Does.LOSE_REPLY, 1), (Does.HANG, 2)])
def test_elsewhere_the_service_is_asked_after_the_lease(service: Service, does: Does, requests: int) -> None:
    """What is there is not sent again, what is not is: one effect in the end."""
    service.script.append(does)
    scene = scene_of(service, probe=f"{service.url}/{{idempotency_key}}", on_replay="probe")
    assert keys(scene.write(record("A")).written) == ["A"]
    assert [each["id"] for each in service.effects] == ["A"]
    assert len(service.requests) == requests
    assert scene.clock.now > LEASE_SECONDS


def test_another_content_under_a_key_never_reaches_the_service(service: Service) -> None:
    """It is a conflict, whatever the service would have made of it."""
    scene = scene_of(service, on_replay="write")
    scene.write(record("A", 1, amount=1))
    results = scene.write(record("A", 2, amount=2))
    assert [(each.reason, each.record["amount"]) for each in results.rejected] == [("conflict", 2)]
    assert [each["amount"] for each in service.effects] == [1]
    assert len(service.requests) == 1


def test_a_conflict_that_the_service_sees_is_rejected_as_one(service: Service) -> None:
    """422: the key was used with another body; nothing is claimed afterwards."""
    service.script.append(Says(422, body=b"another body"))
    scene = scene_of(service, on_replay="write")
    (refused,) = scene.write(record("A")).rejected
    assert isinstance(refused, Refused)
    assert refused.reason == "conflict"
    assert "another body" in refused.detail
    assert not scene.store.rows


class Remembering(Immediately):
    """Repeats at once, and keeps what the errors asked for."""

    def __init__(self) -> None:
        super().__init__(3)
        self.asked: list[float | None] = []

    def __call__(self, on: Any) -> Iterator[AbstractContextManager[object]]:
        """Yield the attempts."""
        for attempt in super().__call__(on):
            yield _Noting(attempt, self.asked)


class _Noting(AbstractContextManager[None]):
    def __init__(self, attempt: AbstractContextManager[object], asked: list[float | None]) -> None:
        self._attempt = attempt
        self._asked = asked

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self._asked.append(getattr(error, "retry_after_seconds", None))
        return bool(self._attempt.__exit__(kind, error, trace))


def test_the_pause_that_a_service_asks_for_reaches_whoever_repeats(service: Service) -> None:
    """Of each attempt its own, the longest of a batch."""
    service.script += [None, Says(429, {"Retry-After": "2"}), Says(503, {"Retry-After": "1"}), Says(501)]
    attempts = Remembering()
    scene = scene_of(service, on_replay="write")
    with (
        OnceWriter(scene.gate, scene.sink, clock=scene.clock, attempts=attempts) as writer,
        pytest.raises(Unavailable) as caught,
    ):
        writer.write([record("A", 1), record("B", 2), record("C", 3)])
    assert attempts.asked == [2.0, 1.0, None]
    assert keys(caught.value.results.written) == ["A", "C"]


def count(record: Any, key: str) -> None:
    """Do nothing."""


SINKS: list[Sink] = [
    HttpSink("https://shop/", timeout=timedelta(seconds=20)),
    HttpSink("https://shop/", timeout=timedelta(seconds=20), remembers=DAY),
    RedisSink("redis://h", key="{id}", remembers=None, timeout=timedelta(seconds=20)),
    KafkaSink("h:9092", "t", timeout=timedelta(seconds=20)),
    CallableSink.each(count, name="c", timeout=timedelta(seconds=20)),
]
NAMES = itertools.count()


@pytest.mark.parametrize("sink", SINKS, ids=["http", "http that honours keys", "redis", "kafka", "callable"])
@pytest.mark.parametrize(("lease", "fits"), [(19, False), (20, False), (21, True)])
def test_a_lease_that_is_shorter_than_a_call_may_take_is_refused_at_start(
    sink: Sink, *, lease: int, fits: bool
) -> None:
    """Both times are named; nothing has been connected to by then."""
    limited = sink.remembers is not None or sink.kind.value == "external"
    gate = Gate(
        scope=f"lease {next(NAMES)}",
        key=Fields("id"),
        occurrence=SourcePosition("s", "offset"),
        ledger=MemoryLedger("lease"),
        on_replay="write" if limited else None,
        lease=timedelta(seconds=lease),
    )
    if fits:
        write_rules(gate, sink)
    else:
        with pytest.raises(
            Misconfigured, match=rf"lease=0:00:{lease} must be longer than the sink's time-out, 0:00:20"
        ):
            OnceWriter(gate, sink, attempts=Immediately(1))


@pytest.mark.parametrize(("remembers", "fits"), [(timedelta(seconds=29), False), (HOUR, True)])
def test_a_service_that_forgets_within_a_lease_is_refused_at_start(remembers: timedelta, *, fits: bool) -> None:
    """A call is repeated for as long as the lease lasts."""
    sink = HttpSink("https://shop/", remembers=remembers)
    gate = Gate(
        scope="forgets",
        key=Fields("id"),
        occurrence=SourcePosition("s", "offset"),
        ledger=MemoryLedger("lease"),
        on_replay="write",
    )
    if fits:
        write_rules(gate, sink)
    else:
        with pytest.raises(Misconfigured, match="shorten the lease"):
            OnceWriter(gate, sink)


def test_rejected_records_name_status_and_key_and_no_credential(service: Service) -> None:
    """What a person needs who reads the error."""
    service.script.append(Says(400, body=b"amount is missing"))
    scene = scene_of(service, on_replay="write")
    scene.settings["rejected"] = "raise"
    with pytest.raises(RecordsRejected, match=r"status 400: amount is missing.*'id': 'A'"):
        scene.write(record("A"))
