"""The suite on services over HTTP, on a real connection."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.contract import Sink, SinkKind, SinkSession
from oncesink.connectors.http_sink import HttpSink

from tests.contract.outside_contract import OutsideContract
from tests.http_service import Service, http_service


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
