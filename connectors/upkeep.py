"""What upkeep asks of a ledger beyond the gate's verbs: which rows are open for too long, and to forget a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from .contract import Row


class OpenPage(NamedTuple):
    """Open rows, those whose lease ended first in front. `after` says where the next page begins; None: nowhere."""

    rows: Sequence[Row]
    after: object | None


class OpenCount(NamedTuple):
    """How many rows of a scope are open although their lease is over, of its generation and of those before it."""

    current: int
    older_generations: int


@runtime_checkable
class ListsOpen(Protocol):
    """A ledger session that finds open rows by an index. Errors are those of its other verbs."""

    def open_rows(
        self, *, older_than_seconds: float, limit: int, after: object | None = None, skip: int = 0
    ) -> OpenPage:
        """Return open rows of this scope and generation whose lease ended longer ago, with their payload.

        At most `limit` of them, behind `after` (of an earlier page) and without the first `skip`. What was taken,
        finished or released meanwhile is not there; nothing is locked.
        """
        ...

    def count_open(self, *, older_than_seconds: float) -> OpenCount:
        """Count the rows of this scope that `open_rows` would list, and those of older generations."""
        ...


@runtime_checkable
class Forgets(Protocol):
    """A ledger or cache session that deletes what it knows of keys."""

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        """Delete rows, finished ones too; return the digests that were there. Repeating it is harmless."""
        ...
