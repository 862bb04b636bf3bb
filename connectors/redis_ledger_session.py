"""A live ledger in Redis: one script a call, and how a row stands in its value (see `redis_scripts`)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from .contract import Claim, Finish, Row, Scope, Take
from .errors import Misconfigured
from .redis_client import Argument, RedisClient
from .redis_format import LEDGER_VERSION, Damaged, pack_claim, pack_payload, pack_tail, unpack
from .redis_open_rows import OpenIndex
from .redis_scripts import CLAIM, FINISH, READ, RELEASE, TAKE, Pair
from .redis_settings import milliseconds
from .upkeep import OpenCount, OpenPage

if TYPE_CHECKING:
    from .redis_ledger import RedisLedger

OWNER_BYTES = 16

_HEAD = struct.Struct(">cc16sQQ")
_OPEN, _FINISHED = b"o", b"f"
_STATES = (_OPEN, _FINISHED)


class RedisLedgerSession:
    """One script a call; each is one moment of the server's clock."""

    def __init__(self, recipe: RedisLedger, client: RedisClient, ledger_id: bytes, scope: Scope) -> None:
        self._client = client
        self._open = OpenIndex(client, recipe.prefix, scope) if recipe.lists_open else None
        self._px = milliseconds("retention", recipe.retention)
        self._head = f"{recipe.prefix}:r:".encode()
        self._ledger_id = ledger_id

    @property
    def ledger_id(self) -> bytes:
        """Return 16 random bytes, drawn when this scope was first opened."""
        return self._ledger_id

    def claim(self, claims: Sequence[Claim], *, owner: bytes, lease_seconds: float | None) -> Mapping[bytes, Row]:
        """Insert the rows that are absent; return {}, or all rows where some were there."""
        if not claims:
            return {}
        state, lease = (_FINISHED, 0) if lease_seconds is None else (_OPEN, _micros(lease_seconds))
        packed = [_packed(claim) for claim in claims]
        digests = [claim.digest for claim in claims]
        arguments: list[Argument] = [self._px, state, _sized(owner), lease, *packed]
        reply = self._run(CLAIM, digests, arguments)
        return {} if reply is None else self._rows(digests, reply)

    def read(self, digests: Sequence[bytes]) -> Mapping[bytes, Row]:
        """Return the rows that are there."""
        if not digests:
            return {}
        return self._rows(digests, self._client.run(READ, self._keys(digests), [], changes=False))

    def take(self, takes: Sequence[Take], *, owner: bytes, lease_seconds: float) -> set[bytes]:
        """Replace the owner of open rows that are still as seen; return those that now are this owner's."""
        if not takes:
            return set()
        # A lease that has ended, to give a row back, is below zero.
        arguments: list[Argument] = [self._px, _sized(owner), round(lease_seconds * 1e6)]
        for take in takes:
            arguments.append(_seen(take.row))
            arguments.append(b"" if take.claim is None else _packed(take.claim))
        taken = self._run(TAKE, [take.digest for take in takes], arguments)
        return {takes[number - 1].digest for number in taken}

    def finish(self, finishes: Sequence[Finish], *, owner: bytes) -> set[bytes]:
        """Mark rows of this owner finished; return those of other owners."""
        if not finishes:
            return set()
        arguments: list[Argument] = [self._px, _sized(owner)]
        for claim, result in finishes:
            arguments.append(_packed(claim))
            arguments.append(pack_tail(result))
        others = self._run(FINISH, [finish.claim.digest for finish in finishes], arguments)
        return {finishes[number - 1].claim.digest for number in others}

    def release(self, digests: Sequence[bytes], *, owner: bytes) -> None:
        """Delete open rows of this owner."""
        if digests:
            self._run(RELEASE, digests, [_sized(owner)])

    def open_rows(
        self, *, older_than_seconds: float, limit: int, after: object | None = None, skip: int = 0
    ) -> OpenPage:
        """Return open rows whose lease ended longer ago. Raises `Misconfigured` without `lists_open`."""
        page = self._listed().page(_micros(older_than_seconds), head=self._head, limit=limit, after=after, skip=skip)
        return OpenPage([unpack_row(digest, value, page.now) for digest, value in page.found], page.after)

    def count_open(self, *, older_than_seconds: float) -> OpenCount:
        """Count open rows whose lease ended longer ago. Raises `Misconfigured` without `lists_open`."""
        return self._listed().count(_micros(older_than_seconds))

    def _listed(self) -> OpenIndex:
        if self._open is None:
            raise Misconfigured("a ledger in Redis finds its open rows by a list: RedisLedger(..., lists_open=True)")
        return self._open

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        """Delete rows; return the digests that were there."""
        there = set(self.read(digests))
        if digests:
            self._client.call("DEL", *self._keys(digests), changes=True)
        return there

    def transaction(self) -> AbstractContextManager[None]:
        """Refuse: Redis undoes nothing. Raises `Misconfigured`."""
        raise Misconfigured("Redis has no transactions: a transactional sink needs the ledger of its own database")

    def close(self) -> None:
        """Give the connection back. Safe to repeat."""
        self._client.close()

    def _run(self, scripts: Pair, digests: Sequence[bytes], arguments: Sequence[Argument]) -> Any:
        if self._open is None:
            return self._client.run(scripts.plain, self._keys(digests), arguments, changes=True)
        return self._client.run(scripts.listing, [*self._keys(digests), self._open.key], arguments, changes=True)

    def _keys(self, digests: Sequence[bytes]) -> list[bytes]:
        head = self._head
        return [head + digest for digest in digests]

    def _rows(self, digests: Sequence[bytes], reply: Sequence[bytes | None]) -> dict[bytes, Row]:
        now = int.from_bytes(reply[0] or b"", "big")
        pairs = zip(digests, reply[1:], strict=True)
        return {digest: unpack_row(digest, value, now) for digest, value in pairs if value is not None}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._ledger_id.hex()} {self._client!r}>"


def unpack_row(digest: bytes, value: bytes, now: int) -> Row:
    """Read a row at a moment in microseconds. Raises `Misconfigured` for one that this version did not write."""
    try:
        version, state, owner, lease_until, since = _HEAD.unpack_from(value)
        if version != LEDGER_VERSION or state not in _STATES:
            raise Damaged("unknown version or state")
        occurrence, payload_hash, result, payload = unpack(value, _HEAD.size)
    except (Damaged, struct.error) as error:
        raise Misconfigured(
            f"the row of {digest.hex()} was written by another version or program ({error}): choose another prefix"
        ) from error
    finished = state == _FINISHED
    left_seconds = 0.0 if finished else (lease_until - now) / 1e6
    lease = None if finished else lease_until
    age_seconds = max(0.0, (now - since) / 1e6)
    return Row(digest, finished, occurrence, owner, payload_hash, result, lease, left_seconds, age_seconds, payload)


def _packed(claim: Claim) -> bytes:
    return pack_payload(pack_claim(claim.occurrence, claim.payload_hash), claim.payload)


def _seen(row: Row | None) -> bytes:
    """Return owner and lease as they stand in the value; what no open row holds, where the row was finished."""
    if row is None:
        return b""
    return row.owner + row.lease_until.to_bytes(8, "big") if isinstance(row.lease_until, int) else row.owner


def _sized(owner: bytes) -> bytes:
    """Return an owner after a look at its length, which the value's layout depends on."""
    if len(owner) != OWNER_BYTES:
        raise ValueError(f"an owner has {OWNER_BYTES} bytes, not {len(owner)}")
    return owner


def _micros(seconds: float) -> int:
    return max(0, round(seconds * 1e6))
