"""Finished rows in the memory of one process, bounded by number and by age."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from .cache_times import TTLRule, check_rule
from .clock import Clock, SystemClock
from .contract import Entry
from .errors import Misconfigured
from .wanted import check_durations


@dataclass(frozen=True, kw_only=True, slots=True)
class LRUCache:
    """Recipe of a cache of the `entries` used last, each kept for `ttl` from its finish. One takes about 0.4 KiB.

    `ttl_by` as in `RedisCache`.

    Delivery: a hint, gone with the session.
    Parallelism: sessions share nothing: each sees only what it was given itself.
    """

    ttl: timedelta
    entries: int
    ttl_by: TTLRule | None = None
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_durations(self)
        check_rule(self.ttl_by)
        if self.ttl <= timedelta(0):
            raise Misconfigured(f"ttl must be positive, not {self.ttl}")
        if self.entries < 1:
            raise Misconfigured(f"entries must be at least 1, not {self.entries}")

    def open(self, ledger_id: bytes) -> LRUCacheSession:
        """Give an empty cache; it belongs to this ledger because nobody else can reach it."""
        return LRUCacheSession(self, ledger_id)


class LRUCacheSession:
    """Entries with the moment they end, the one used last at the end."""

    def __init__(self, recipe: LRUCache, ledger_id: bytes) -> None:
        self._ttl_seconds = recipe.ttl.total_seconds()
        self._entries = recipe.entries
        self._clock = recipe.clock
        self._ledger_id = ledger_id
        self._kept: OrderedDict[bytes, tuple[float, Entry]] = OrderedDict()

    def get(self, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        """Return the entries that are there and not over, and count them as used."""
        now, kept, found = self._clock.monotonic(), self._kept, {}
        for digest in digests:
            ends_and_entry = kept.get(digest)
            if ends_and_entry is None:
                continue
            if ends_and_entry[0] > now:
                found[digest] = ends_and_entry[1]
                kept.move_to_end(digest)
            else:
                del kept[digest]
        return found

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        """Keep entries; drop those used longest ago where there are too many."""
        ends, kept = self._clock.monotonic() + self._ttl_seconds, self._kept
        for digest, entry in entries.items():
            age_seconds = entry.age_seconds
            if age_seconds < self._ttl_seconds:
                kept[digest] = ends - age_seconds, entry._replace(age_seconds=0.0) if age_seconds else entry
                kept.move_to_end(digest)
        while len(kept) > self._entries:
            kept.popitem(last=False)

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        """Drop entries of this session; nobody reaches those of others."""
        return {digest for digest in digests if self._kept.pop(digest, None) is not None}

    def close(self) -> None:
        """Forget everything. Safe to repeat."""
        self._kept.clear()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._ledger_id.hex()} entries={len(self._kept)}/{self._entries}>"
