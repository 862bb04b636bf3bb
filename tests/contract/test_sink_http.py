"""The suite on services over HTTP, on a real connection."""

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.conformance import examine
from oncesink.connectors.contract import Sink, SinkKind, SinkSession
from oncesink.connectors.http_sink import HttpSink

from tests.contract.outside_contract import OutsideContract
from tests.http_service import Does, Service, http_service

SHORT = timedelta(milliseconds=200)


class TestHttpSink(OutsideContract):
    """A service that does as it is told, each time."""

    @pytest.fixture(autouse=True)
    def running(self) -> Iterator[None]:
        """Run a service for each test, and close what the test opened."""
        self.opened: list[SinkSession] = []
        with http_service() as self.service:
            self.prepare(self.service)
            yield
            for each in self.opened:
                each.close()

    def prepare(self, service: Service) -> None:
        """Set the service up."""

    def open(self, sink: Sink | None = None) -> SinkSession:
        """Open it, until the test ends."""
        self.opened.append(super().open(sink))
        return self.opened[-1]

    def make(self) -> Sink:
        """Return the recipe: one request at a time keeps the order."""
        return HttpSink(
            f"{self.service.url}/orders", in_flight=1, probe=f"{self.service.url}/orders/{{idempotency_key}}"
        )

    def effects(self) -> list[Any]:
        """Return what the service applied."""
        return self.service.effects

    def test_the_kit_for_sinks_finds_no_flaw(self) -> None:
        """Killed clients and a service that is silent included."""
        records = ({"id": f"r{number}"} for number in itertools.count())
        settings = {"in_flight": 4, "request_timeout": timedelta(seconds=1)}
        sink = dataclasses.replace(self.make(), **settings)  # type: ignore[type-var]
        report = examine(
            sink, records=records, read_back=lambda: list(self.effects()), kills=1, stall=self.silent, grace=SHORT
        )
        assert report.clean, str(report)
        assert report.survives
        assert report.drops_by_key is (self.kind is SinkKind.DROPS_BY_KEY)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Let the service say nothing to the next requests."""
        self.service.script += [Does.HANG, Does.HANG_APPLIED]
        yield
        self.service.script.clear()


class TestHttpSinkThatDropsByKey(TestHttpSink):
    """A service that honours the idempotency key."""

    kind = SinkKind.DROPS_BY_KEY

    def prepare(self, service: Service) -> None:
        """Let it honour keys."""
        service.honours_keys = True

    def make(self) -> Sink:
        """Return the recipe."""
        url = self.service.url
        return HttpSink(
            f"{url}/{{id}}", method="PUT", in_flight=1, remembers=timedelta(days=1), probe=f"{url}/{{idempotency_key}}"
        )
