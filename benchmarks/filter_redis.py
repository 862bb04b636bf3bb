"""The filter that jobs share in Redis against one bit a call, and what a filter in front of Redis and MySQL is worth.

Shared: batches of 1000, half of the asked ones present; the other side sends the ten bits of a key in one pipeline, key
after key. Worth: the same stream through gates with and without a Bloom filter, cache and ledger on real servers, at
several shares of second sends.
"""

import random
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median

import mmh3
import redis
from oncesink.transforms import Bloom, Counts, RedisBloom
from oncesink.transforms.membership import Keys

from benchmarks.gate import records, writer_into
from benchmarks.handwritten import Record
from benchmarks.material import Digests, digests_of
from benchmarks.rows import MeasuredRow
from tests import servers

KEYS = 20_000
SLOW_KEYS = 2_000
BATCH = 1000
ROUNDS = 5
HASHES = 10
"""Bits a key of a plain Bloom filter of one in a thousand."""

SHARES = (0.0, 0.01, 0.5, 0.99)
KNOWN = 5_000
STREAM = 10_000
WORTH_ROUNDS = 3


def rows() -> list[MeasuredRow]:
    """Measure everything; about a minute."""
    with servers.redis_server() as cache, servers.mysql_server() as mysql:
        return [*_shared(cache), *(row for share in SHARES for row in _worth(mysql, cache, share))]


def _shared(server: servers.RedisServer) -> list[MeasuredRow]:
    rates: dict[str, list[float]] = {f"{side} {what}": [] for side in ("ours", "theirs") for what in ("add", "query")}
    for turn in range(ROUNDS):
        held, absent = digests_of(KEYS, seed=turn), digests_of(KEYS, seed=100 + turn)
        mixed = [digest for pair in zip(held, absent, strict=True) for digest in pair][:KEYS]
        add, query = _ours(server, f"bench{turn}", held, mixed)
        rates["ours add"].append(add)
        rates["ours query"].append(query)
        add, query = _bit_by_bit(server, f"plain{turn}", held[:SLOW_KEYS], mixed[:SLOW_KEYS])
        rates["theirs add"].append(add)
        rates["theirs query"].append(query)
    return [_faster(what, rates[f"ours {what}"], rates[f"theirs {what}"]) for what in ("add", "query")]


def _faster(what: str, mine: list[float], others: list[float]) -> MeasuredRow:
    return MeasuredRow(
        name=f"shared filter {what} / SETBIT and GETBIT key by key",
        ours=median(mine),
        theirs=median(others),
        ratio=median(one / other for one, other in zip(mine, others, strict=True)),
        at_least=10.0,
        unit="keys/s",
        raw={"ours": mine, "theirs": others},
    )


def _ours(server: servers.RedisServer, name: str, held: Digests, mixed: Digests) -> tuple[float, float]:
    recipe = RedisBloom(server.url, name, capacity=2 * KEYS, error_rate=0.001)
    recipe.create_filter()
    with closing(recipe.open(Counts())) as live:
        return _rate(lambda some: live.add(Keys(some)), held), _rate(lambda some: live.query(Keys(some)), mixed)


def _bit_by_bit(server: servers.RedisServer, name: str, held: Digests, mixed: Digests) -> tuple[float, float]:
    with closing(redis.Redis.from_url(server.url)) as client:
        bits = 16 * 2 * KEYS

        def places(digest: bytes) -> list[int]:
            first, second = mmh3.hash64(digest, signed=False)
            return [(first + turn * second) % bits for turn in range(HASHES)]

        def add(some: Digests) -> None:
            for digest in some:
                pipeline = client.pipeline(transaction=False)
                for place in places(digest):
                    pipeline.setbit(name, place, 1)
                pipeline.execute()

        def query(some: Digests) -> None:
            for digest in some:
                pipeline = client.pipeline(transaction=False)
                for place in places(digest):
                    pipeline.getbit(name, place)
                all(pipeline.execute())

        return _rate(add, held), _rate(query, mixed)


def _rate(call: Callable[[Digests], object], digests: Digests) -> float:
    """Return keys a second."""
    begin = time.perf_counter()
    for at in range(0, len(digests), BATCH):
        call(digests[at : at + BATCH])
    return len(digests) / (time.perf_counter() - begin)


def _worth(mysql: servers.MySQLServer, cache: servers.RedisServer, share: float) -> list[MeasuredRow]:
    """Compare a gate with a filter and one without, on a stream with this share of second sends."""
    micros: dict[bool, list[float]] = {True: [], False: []}
    looks: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(WORTH_ROUNDS):
        known, stream = _stream(share, turn)
        for filtered in (True, False):
            spent, asked = _through(mysql, cache, known, stream, filtered=filtered)
            micros[filtered].append(spent * 1e6 / len(stream))
            looks[filtered].append(asked / len(stream))
    of = f"at {share:.0%} second sends, without a filter / with one"
    return [
        _row(f"look-ups a record in Redis and MySQL, {of}", looks, "look-ups"),
        _row(f"time a record, {of}", micros, "us"),
    ]


def _row(name: str, found: dict[bool, list[float]], unit: str) -> MeasuredRow:
    mine, theirs = median(found[True]), median(found[False])
    # Nothing at all is as good as one in a stream.
    ratio = theirs / max(mine, 1 / STREAM)
    raw = {"with": found[True], "without": found[False]}
    return MeasuredRow(name=name, ours=mine, theirs=theirs, ratio=ratio, at_least=None, unit=unit, raw=raw)


def _stream(share: float, turn: int) -> tuple[list[Record], list[Record]]:
    """Return records that are written before, and a stream of new ones and second sends of those."""
    chance = random.Random(turn)
    known = records(KNOWN, f"known{turn}", 0)
    new = iter(records(STREAM, f"new{turn}", 0))
    again = iter(records(STREAM, f"known{turn}", KNOWN)[:KNOWN] * (STREAM // KNOWN))
    return known, [next(again) if chance.random() < share else next(new) for _ in range(STREAM)]


def _through(
    mysql: servers.MySQLServer, cache: servers.RedisServer, known: list[Record], stream: list[Record], *, filtered: bool
) -> tuple[float, int]:
    """Return the seconds that the stream took, and how many digests were looked up in cache and ledger for it."""
    counts = Counts()
    membership = Bloom(capacity=4 * STREAM, error_rate=0.001) if filtered else None
    with writer_into(mysql, cache, counts, membership=membership) as writer:
        writer.write(known)
        before = counts["cache_asked"] + counts["ledger_read"]
        begin = time.perf_counter()
        writer.write(stream)
        return time.perf_counter() - begin, counts["cache_asked"] + counts["ledger_read"] - before
