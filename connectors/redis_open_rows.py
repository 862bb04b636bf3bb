"""The list of open rows of a Redis ledger: a sorted set of digests by the end of their lease, in microseconds.

One for each scope and generation, `<prefix>:o:<use>:<generation>:<scope>`, kept by the scripts of the verbs. It may
hold rows that are done, or the end of an older lease, where a job without `lists_open` was at it: whoever lists looks
at each row and mends the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .contract import Scope
from .redis_client import Argument, RedisClient
from .redis_scripts import COUNT_OPEN, OPEN_ROWS
from .upkeep import OpenCount


class Place(NamedTuple):
    """Where a page ended."""

    digest: bytes
    lease_until: bytes


class Listed(NamedTuple):
    """A page: digests and values of rows as they were at `now`, in microseconds."""

    now: int
    found: Sequence[tuple[bytes, bytes]]
    after: Place | None


class OpenIndex:
    """The list of one scope, at its generation."""

    def __init__(self, client: RedisClient, prefix: str, scope: Scope) -> None:
        self._client = client
        self._head = f"{prefix}:o:{scope.use.value}:"
        self._scope = scope
        self.key = self._key(scope.generation)

    def _key(self, generation: int) -> bytes:
        return f"{self._head}{generation}:{self._scope.name}".encode()

    def page(self, micros: int, *, head: bytes, limit: int, after: object | None, skip: int) -> Listed:
        """Return the rows whose lease ended more than `micros` ago."""
        place = after if isinstance(after, Place) else Place(b"", b"0")
        arguments: list[Argument] = [head, limit, micros, *place, skip]
        now, digest, score, *found = self._client.run(OPEN_ROWS, [self.key], arguments, changes=False)
        pairs = list(zip(found[::2], found[1::2], strict=True))
        return Listed(int.from_bytes(now, "big"), pairs, Place(digest, score) if digest else None)

    def count(self, micros: int) -> OpenCount:
        """Count them, and those of all generations before."""
        keys = [self._key(generation) for generation in range(1, self._scope.generation + 1)]
        *older, current = self._client.run(COUNT_OPEN, keys, [micros], changes=False)
        return OpenCount(current, sum(older))
