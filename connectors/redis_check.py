"""Prove what the guarantee needs from a Redis, and tell what endangers it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cache

from .errors import Misconfigured
from .findings import Finding
from .redis_client import RedisClient

_log = logging.getLogger(__name__)

_LEAST_VERSION = (7, 0)


def check_ledger(client: RedisClient) -> list[Finding]:
    """Look at a Redis that is to be the only ledger. Raises `Unavailable`."""
    info = read_info(client)
    return [*_server(info), *_role(info), *_eviction(info), *_persistence(info, client)]


def check_cache(client: RedisClient) -> list[Finding]:
    """Look at a Redis that is to be a cache, which may evict and forget. Raises `Unavailable`."""
    info = read_info(client)
    return [*_server(info), *_role(info), *_bound(info)]


def read_info(client: RedisClient) -> dict[str, str]:
    """Return what INFO tells, as text by name."""
    text: bytes = client.call("INFO", changes=False)
    pairs = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    return {name: value for name, _, value in pairs if value}


@cache
def warn_once(place: str, finding: Finding) -> None:
    """Log a finding once a process: each worker opens many sessions."""
    _log.warning("Redis at %s: %s", place, finding)


def _server(info: Mapping[str, str]) -> Iterator[Finding]:
    version = info.get("redis_version", "")
    if _numbers(version) < _LEAST_VERSION:
        yield Finding(
            severity="error",
            what=f"redis_version is {version or 'unknown'}",
            todo="use Redis 7.0 or later: earlier ones hide the code of an error inside a script",
        )
    if info.get("cluster_enabled") == "1":
        yield Finding(
            severity="error",
            what="cluster_enabled is 1",
            todo="name a single server: the rows of one call lie in several slots of a cluster",
        )


def _role(info: Mapping[str, str]) -> Iterator[Finding]:
    if info.get("role") != "master":
        yield Finding(
            severity="error",
            what=f"its role is {info.get('role')}",
            todo="name the primary: a replica takes no writes",
        )


def _eviction(info: Mapping[str, str]) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        return
    # Without a bound nothing is evicted now; but whoever sets one later would not think of the rows.
    bounded = info.get("maxmemory", "0") != "0"
    yield Finding(
        severity="error" if bounded else "warning",
        what=f"maxmemory-policy is {policy}",
        todo="set it to noeviction: an evicted row is a record that is written twice",
    )


def _bound(info: Mapping[str, str]) -> Iterator[Finding]:
    if info.get("maxmemory", "0") != "0" and info.get("maxmemory_policy") == "noeviction":
        yield Finding(
            severity="warning",
            what="maxmemory-policy is noeviction",
            todo="set it to allkeys-lru: a full cache should drop its oldest entries, not refuse new ones",
        )


def _persistence(info: Mapping[str, str], client: RedisClient) -> Iterator[Finding]:
    if info.get("aof_enabled") != "1":
        yield Finding(
            severity="warning",
            what="appendonly is no" if _saves(client) else "neither appendonly nor save is set",
            todo="set it to yes: a restart forgets the rows that are not on disk, and their records are written twice",
        )
    elif _setting(client, "appendfsync") not in {"always", None}:
        yield Finding(
            severity="warning",
            what="appendfsync is not always",
            todo="a power cut forgets the last second of rows: set it to always, or accept that",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        yield Finding(
            severity="warning",
            what="the last write of the append-only file failed",
            todo="look at its disk and its log",
        )


def _saves(client: RedisClient) -> bool:
    return _setting(client, "save") not in {"", None}


def _setting(client: RedisClient, name: str) -> str | None:
    """Return a setting; None where the server does not tell, as hosted ones do."""
    try:
        reply: list[bytes] = client.call("CONFIG", "GET", name, changes=False)
    except Misconfigured:
        return None
    return reply[1].decode() if len(reply) == 2 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
