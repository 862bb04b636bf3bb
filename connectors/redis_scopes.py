"""What scopes mean, kept beside the rows: one hash for each scope and use, `<prefix>:s:<use>:<name>`.

| field | what |
|---|---|
| `format` | version of this hash |
| `meaning` | JSON |
| `generation` | whole number |
| `ledger_id` | 16 bytes |
| `retention_seconds` | of whoever opened it last |

It has no time to live: a scope that nobody opens any more is deleted by hand.
"""

from __future__ import annotations

from .contract import Scope
from .errors import Misconfigured
from .redis_client import Argument, RedisClient, Script
from .scopes import Registered

_REPLACE = Script(
    """
    local key, argv = KEYS[1], ARGV
    local stored = redis.call('HMGET', key, 'generation', 'meaning')
    if (stored[1] or '') ~= argv[1] or (stored[2] or '') ~= argv[2] then return 0 end
    redis.call('HSET', key, unpack(argv, 3))
    return 1
    """
)
"""Generation and meaning as seen, '' for none, then fields and values. Returns whether they were stored."""


class RedisScopes:
    """The scopes of one prefix."""

    def __init__(self, client: RedisClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def insert(self, scope: Scope, row: Registered) -> None:
        """Store the hash unless there is one."""
        self._replace(scope, row, ["", "", "ledger_id", row.ledger_id])

    def load(self, scope: Scope) -> Registered | None:
        """Return the scope as it is stored. Raises `Misconfigured` where the hash lacks a field."""
        flat: list[bytes] = self._client.call("HGETALL", self._key(scope), changes=False)
        if not flat:
            return None
        stored = dict(zip(flat[::2], flat[1::2], strict=True))
        try:
            return Registered(
                tables_format=int(stored[b"format"]),
                generation=int(stored[b"generation"]),
                meaning=stored[b"meaning"].decode(),
                ledger_id=stored[b"ledger_id"],
                retention_seconds=int(stored[b"retention_seconds"]),
            )
        except (KeyError, ValueError) as error:
            raise Misconfigured(f"{self._key(scope)!r} holds no scope: choose another prefix") from error

    def replace(self, scope: Scope, row: Registered, *, seen: Registered) -> None:
        """Store all but the ledger id, if generation and meaning are still as seen."""
        self._replace(scope, row, [str(seen.generation), seen.meaning])

    def _replace(self, scope: Scope, row: Registered, first: list[Argument]) -> None:
        retention_seconds = 0 if row.retention_seconds is None else row.retention_seconds
        fields: list[Argument] = ["format", row.tables_format, "meaning", row.meaning]
        fields += ["generation", row.generation, "retention_seconds", retention_seconds]
        # A repetition finds what it stored itself and changes nothing: a lost reply does not matter.
        self._client.run(_REPLACE, [self._key(scope)], [*first, *fields], changes=False)

    def _key(self, scope: Scope) -> bytes:
        return f"{self._prefix}:s:{scope.use.value}:{scope.name}".encode()
