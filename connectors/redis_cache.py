"""Finished rows in Redis, before a ledger that decides.

A key is `<prefix>:c:` + ledger id (16 bytes) + digest (16 bytes). Its value is the version byte 1, then what
`redis_format` tells, tail included. A value of another version, or a damaged one, counts as not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import partial
from itertools import repeat
from math import ceil
from typing import Any

from .breaker import Breaker
from .cache_times import TTLRule, check_rule
from .clock import Clock, SystemClock
from .contract import Entry
from .errors import Misconfigured, OutcomeUnknown, Unavailable
from .redis_client import RedisClient, RedisEndpoint, Refused, Script
from .redis_format import CACHE_VERSION, HASH_BYTES, Damaged, pack_claim, pack_tail, unpack
from .redis_settings import check_pauses, check_prefix, milliseconds
from .secret import Secret
from .wanted import check_durations

# A pipeline of SET would cost the client three times as much, most of it for a thousand replies read one by one.
_PUT = Script(
    """
    local keys, argv, pcall, count = KEYS, ARGV, redis.pcall, #KEYS
    local refused = false
    for i = 1, count do
        local reply = pcall('SET', keys[i], argv[i], 'PX', argv[count + i] or argv[count + 1])
        if reply.err then refused = reply end
    end
    return refused
    """
)
"""Arguments: the values, then their times to live in milliseconds, or one for all. Returns the last error."""

_USUAL = CACHE_VERSION + b"\x03"
_new_entry: Callable[[Iterable[Any]], Entry] = partial(tuple.__new__, Entry)


@dataclass(frozen=True, slots=True)
class RedisCache:
    """Recipe of a cache in one Redis.

    `ttl` counts from a row's finish. `ttl_by`, a picklable function of a record, may return less for some: second sends
    of payments come for days, those of clicks for minutes. `budget` bounds connecting and each reply; a Redis that
    stays away costs one budget a pause: the first pause, doubled up to the longest. A Redis that is away when the cache
    is opened does not hinder it; one that refuses the password does.

    Delivery: a hint. Entries are put after the ledger has committed, and may be evicted, flushed or lost at any time.
    Parallelism: any number of sessions, also of several machines; each has one connection and its own breaker.
    """

    url: str
    _: KW_ONLY
    ttl: timedelta
    ttl_by: TTLRule | None = None
    password: Secret | None = None
    prefix: str = "oncesink"
    budget: timedelta = timedelta(milliseconds=500)
    first_pause: timedelta = timedelta(seconds=1)
    longest_pause: timedelta = timedelta(seconds=30)
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    """For the pauses only: Redis itself counts the `ttl`."""

    def __post_init__(self) -> None:
        check_durations(self)
        check_rule(self.ttl_by)
        milliseconds("ttl", self.ttl)
        milliseconds("budget", self.budget)
        check_prefix(self.prefix)
        check_pauses(self.first_pause, self.longest_pause)
        endpoint = self.endpoint
        object.__setattr__(self, "url", endpoint.url)
        object.__setattr__(self, "password", endpoint.password)

    @property
    def endpoint(self) -> RedisEndpoint:
        """Return where the Redis is."""
        seconds = self.budget.total_seconds()
        return RedisEndpoint(url=self.url, password=self.password, connect_seconds=seconds, call_seconds=seconds)

    def open(self, ledger_id: bytes) -> RedisCacheSession:
        """Connect and read once. Raises `Misconfigured` for a missing driver or a refused password."""
        session = RedisCacheSession(self, ledger_id)
        session.probe()
        return session


class RedisCacheSession:
    """One connection, one breaker for each verb: a Redis that is full or read-only still answers `get`."""

    def __init__(self, recipe: RedisCache, ledger_id: bytes) -> None:
        self._client = RedisClient(recipe.endpoint)
        self._ttl_ms = milliseconds("ttl", recipe.ttl)
        self._head = f"{recipe.prefix}:c:".encode() + ledger_id
        self._gets = _breaker(recipe, "reading the cache")
        self._puts = _breaker(recipe, "filling the cache")
        self.damaged = 0
        """Values that were there and could not be read."""

    def probe(self) -> None:
        """Read a key that is not there. Raises `Misconfigured`; a Redis that is away only opens the breaker."""
        try:
            self._client.call("MGET", self._head + bytes(16), changes=False)
        except Unavailable:
            self._away()

    def get(self, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        """Return the entries that are there, by one MGET."""
        if not digests:
            return {}
        head = self._head
        keys = [head + digest for digest in digests]
        values = self._guarded(self._gets, lambda: self._client.call("MGET", *keys, changes=False))
        return _usual(digests, values) or self._each(digests, values)

    def _each(self, digests: Sequence[bytes], values: Sequence[bytes | None]) -> dict[bytes, Entry]:
        """Read values of any form, one by one."""
        found = {}
        for digest, value in zip(digests, values, strict=True):
            if value is not None and (entry := self._entry(value)) is not None:
                found[digest] = entry
        return found

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        """Keep entries by one script. Raises `Unavailable` if any was refused; the others are kept."""
        whole_ms, head = self._ttl_ms, self._head
        keys, values, left_ms = [], [], []
        for digest, (occurrence, payload_hash, result, age_seconds) in entries.items():
            left = whole_ms - ceil(age_seconds * 1000) if age_seconds else whole_ms
            if left > 0:
                keys.append(head + digest)
                values.append(CACHE_VERSION + pack_claim(occurrence, payload_hash) + pack_tail(result))
                left_ms.append(left)
        if keys:
            times = [whole_ms] if min(left_ms) == whole_ms else left_ms
            self._guarded(self._puts, lambda: self._client.run(_PUT, keys, [*values, *times], changes=True))

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        """Delete entries; return those that were there."""
        keys = [self._head + digest for digest in digests]
        gone = [self._guarded(self._puts, partial(self._client.call, "DEL", key, changes=True)) for key in keys]
        return {digest for digest, count in zip(digests, gone, strict=True) if count}

    def close(self) -> None:
        """Give the connection back. Safe to repeat."""
        self._client.close()

    def _entry(self, value: bytes) -> Entry | None:
        try:
            if value[:1] != CACHE_VERSION:
                raise Damaged("unknown version")
            return Entry(*unpack(value, 1)[:3])
        except Damaged:
            self.damaged += 1
            return None

    def _guarded(self, breaker: Breaker, call: Callable[[], Any]) -> Any:
        breaker.check()
        try:
            answer = call()
        except (Refused, Misconfigured) as error:
            breaker.failed()
            raise Unavailable(str(error)) from error
        except (Unavailable, OutcomeUnknown) as error:
            self._away()
            raise Unavailable(str(error)) from error
        breaker.succeeded()
        return answer

    def _away(self) -> None:
        self._gets.failed()
        self._puts.failed()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._client!r} {self._gets!r} {self._puts!r} damaged={self.damaged}>"


def _usual(digests: Sequence[bytes], values: Sequence[bytes | None]) -> dict[bytes, Entry]:
    """Read values that all have occurrence and payload hash and no result, column by column; {} if others are there.

    Nearly all have, and those that are not there are left out first: four times as fast as one by one.
    """
    if None in values:
        there = [pair for pair in zip(digests, values, strict=True) if pair[1] is not None]
        digests, values = [digest for digest, _ in there], [value for _, value in there]
    kept: Sequence[Any] = values
    if not all(value[:2] == _USUAL and len(value) == 3 + value[2] + HASH_BYTES for value in kept):
        return {}
    occurrences = [value[3:-HASH_BYTES] for value in kept]
    hashes = [value[-HASH_BYTES:] for value in kept]
    entries = map(_new_entry, zip(occurrences, hashes, repeat(None), repeat(0.0), strict=False))
    return dict(zip(digests, entries, strict=True))


def _breaker(recipe: RedisCache, what: str) -> Breaker:
    return Breaker(
        what,
        first_seconds=recipe.first_pause.total_seconds(),
        longest_seconds=recipe.longest_pause.total_seconds(),
        clock=recipe.clock,
    )
