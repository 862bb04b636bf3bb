"""Values in Redis by a key made of the record.

Beside each value that is written stands a mark, `<prefix>:w:` + digest (16 bytes), which holds the occurrence that
wrote it. Mark and value come and go in one script. An upsert alone would not do: the replay of an older version of a
value would bring it back over a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any

from .contract import ALREADY, WRITTEN, Answer, LedgerSession, Outcome, Scope, SinkKind, Write
from .errors import Misconfigured, Rejected
from .findings import refuse_errors
from .json_lines import json_line
from .redis_check import check_ledger, warn_once
from .redis_client import Argument, RedisClient, RedisEndpoint, Script
from .redis_scopes import RedisScopes
from .redis_settings import check_prefix, milliseconds
from .refusals import refusal
from .scopes import register
from .secret import Secret
from .text_template import filled, pieces
from .wanted import check_durations

Value = bytes | str | Mapping[str, "bytes | str | int"]
"""What is stored: bytes or text by SET, fields by HSET."""

MOST_FIELDS = 1000
STEPS = 8
"""Replies that a call may wait for, one after the other: connect, greet (5), and the script twice."""

_WRITE = Script(
    """
    local keys, argv, pcall = KEYS, ARGV, redis.pcall
    local remembers, ttl, at = argv[1], argv[2], 3
    local answers = {}
    for i = 1, #keys, 2 do
        local key, mark, occurrence, count = keys[i], keys[i + 1], argv[at], tonumber(argv[at + 1])
        local first, last = at + 2, at + 1 + count
        at = last + 1
        local reply
        if remembers == '0' then reply = pcall('SET', mark, occurrence, 'NX')
        else reply = pcall('SET', mark, occurrence, 'NX', 'PX', remembers) end
        if reply == false then
            answers[#answers + 1] = pcall('GET', mark)
        elseif reply.err then
            answers[#answers + 1] = {reply.err}
        else
            if count == 1 then reply = pcall('SET', key, argv[first])
            else reply = pcall('HSET', key, unpack(argv, first, last)) end
            if type(reply) == 'table' and reply.err then
                pcall('DEL', mark)
                answers[#answers + 1] = {reply.err}
            else
                if ttl ~= '0' then pcall('PEXPIRE', key, ttl) end
                answers[#answers + 1] = 1
            end
        end
    end
    return answers
    """
)
"""Milliseconds that marks live, and values, 0 for ever; then for each write its occurrence, the number of arguments,
and these. Keys: value and mark of each write. Returns 1, or the occurrence that wrote, or a list of the error."""


@dataclass(frozen=True, slots=True)
class RedisSink:
    """Recipe of a sink that stores a value by key, over what was there.

    `RedisSink("redis://cache:6379/0", key="order:{order_id}", remembers=timedelta(days=2))`. `key` is a template of the
    record's fields; with more than one see to it that no value holds what stands between them. `value` makes bytes
    or text, which are SET, or fields, which are HSET beside those that are there; by default the record as JSON. `ttl`
    lets values expire. `remembers` is how long the mark of a write is kept, some 100 bytes each; None: for ever.
    `timeout` bounds a call: an eighth of it for each step from connecting to the reply. Functions must be picklable.

    Delivery: a second write of a key of the gate changes nothing, also when a newer one has written over the value,
    for as long as it `remembers` and Redis keeps what it acknowledged; of older writes a probe finds nothing. Redis
    undoes no write, so it cannot stand in the transaction of a ledger.
    Parallelism: any number of sessions, also of several machines; each has one connection. Of two writes of one Redis
    key, the one that comes later stays.
    """

    url: str
    _: KW_ONLY
    key: str
    value: Callable[[Any], Value] | None = None
    remembers: timedelta | None
    ttl: timedelta | None = None
    password: Secret | None = None
    prefix: str = "oncesink"
    timeout: timedelta = timedelta(seconds=10)

    kind = SinkKind.DROPS_BY_KEY
    atomic = False
    can_probe = True
    tells_occurrence = True

    def __post_init__(self) -> None:
        check_durations(self)
        endpoint = self.endpoint
        object.__setattr__(self, "url", endpoint.url)
        object.__setattr__(self, "password", endpoint.password)
        milliseconds("timeout", self.timeout / STEPS)
        for name, value in (("remembers", self.remembers), ("ttl", self.ttl)):
            if value is not None:
                milliseconds(name, value)
        check_prefix(self.prefix)
        if not any(name for _, name in pieces(self.key)):
            raise Misconfigured(f"key={self.key!r} is the same for each record: name a field, as in order:{{order_id}}")

    @property
    def endpoint(self) -> RedisEndpoint:
        """Return where the Redis is."""
        seconds = self.timeout.total_seconds() / STEPS
        return RedisEndpoint(url=self.url, password=self.password, connect_seconds=seconds, call_seconds=seconds)

    @property
    def target(self) -> str:
        return f"Redis {self.endpoint.place} {self.key}"

    def open(self, scope: Scope, ledger: LedgerSession | None) -> RedisSinkSession:
        """Connect and check the server's settings; without a ledger register the scope."""
        client = RedisClient(self.endpoint)
        try:
            findings = check_ledger(client)
            refuse_errors(findings)
            for finding in findings:
                warn_once(self.endpoint.place, finding)
            scopes = RedisScopes(client, self.prefix)
            store_id = register(scopes, scope, retention=self.remembers) if ledger is None else None
        except BaseException:
            client.close()
            raise
        return RedisSinkSession(self, client, store_id)


class RedisSinkSession:
    """One connection; each call is one script."""

    def __init__(self, sink: RedisSink, client: RedisClient, store_id: bytes | None) -> None:
        self._client = client
        self._value = sink.value
        self._key = pieces(sink.key)
        self._head = f"{sink.prefix}:w:".encode()
        self._times = [0 if each is None else milliseconds("time", each) for each in (sink.remembers, sink.ttl)]
        self.store_id = store_id

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        keys: list[bytes] = []
        arguments: list[Argument] = [*self._times]
        refused: list[Answer | None] = []
        for each in writes:
            try:
                key, values = filled(self._key, each.record).encode(), self._values(each.record)
            except Exception as error:  # noqa: BLE001 - nothing of this record was sent
                refused.append(refusal(error))
                continue
            refused.append(None)
            keys += (key, self._head + each.digest)
            arguments += (each.occurrence or b"", len(values), *values)
        replies = iter(self._client.run(_WRITE, keys, arguments, changes=True) if keys else ())
        return [_answer(next(replies)) if answer is None else answer for answer in refused]

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        if not writes:
            return []
        marks = self._client.call("MGET", *[self._head + each.digest for each in writes], changes=False)
        return [None if mark is None else _already(mark) for mark in marks]

    def _values(self, record: Any) -> list[Argument]:
        """Return one argument for SET, or names and values for HSET."""
        value = json_line(record).rstrip(b"\n") if self._value is None else self._value(record)
        if not isinstance(value, Mapping):
            return [_encoded(value)]
        if not 0 < len(value) <= MOST_FIELDS:
            raise Rejected("too_large" if value else "wrong_type", f"a hash of {len(value)} fields; 1 to {MOST_FIELDS}")
        return [_encoded(part) for pair in value.items() for part in pair]

    def close(self) -> None:
        """Give the connection back. Safe to repeat."""
        self._client.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._client!r}>"


def _encoded(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise Rejected("wrong_type", f"Redis keeps bytes, text and whole numbers, not a {type(value).__name__}")
    return str(value).encode()


def _answer(reply: int | bytes | Sequence[bytes]) -> Answer:
    if isinstance(reply, int):
        return WRITTEN
    if isinstance(reply, bytes):
        return _already(reply)
    error = reply[0].decode(errors="replace")
    wrong_kind = error.startswith("WRONGTYPE")
    return Answer(Outcome.REJECTED if wrong_kind else Outcome.UNAVAILABLE, detail=f"Redis: {error}")


def _already(mark: bytes) -> Answer:
    return ALREADY._replace(occurrence=mark or None)
