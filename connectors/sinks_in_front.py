"""What a sink that stands in front of another one passes on: all but what it changes on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from .contract import Answer, ProvesFirst, Sink, SinkKind, SinkSession, Write


class SinkInFront:
    """Base of recipes with a sink in `inner`; `open` is theirs."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def inner(self) -> Sink: ...

    @property
    def kind(self) -> SinkKind:
        """Return that of the sink behind."""
        return self.inner.kind

    @property
    def target(self) -> str:
        """Return that of the sink behind."""
        return self.inner.target

    @property
    def timeout(self) -> timedelta:
        """Return that of the sink behind."""
        return self.inner.timeout

    @property
    def atomic(self) -> bool:
        """Return that of the sink behind."""
        return self.inner.atomic

    @property
    def can_probe(self) -> bool:
        """Return that of the sink behind."""
        return self.inner.can_probe

    @property
    def remembers(self) -> timedelta | None:
        """Return that of the sink behind."""
        return self.inner.remembers

    @property
    def tells_occurrence(self) -> bool:
        """Return that of the sink behind."""
        return self.inner.tells_occurrence

    def prove(self) -> None:
        """Let the sink behind look at its target, if it is one that does."""
        if isinstance(self.inner, ProvesFirst):
            self.inner.prove()


class SinkSessionInFront:
    """Base of their sessions; `write` is mostly theirs."""

    def __init__(self, inner: SinkSession) -> None:
        self.inner = inner

    @property
    def store_id(self) -> bytes | None:
        """Return that of the session behind."""
        return self.inner.store_id

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        """Write."""
        return self.inner.write(writes, timeout_seconds=timeout_seconds)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        """Probe."""
        return self.inner.probe(writes, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Close the session behind."""
        self.inner.close()
