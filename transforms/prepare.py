"""From records to items: key, digest, occurrence and payload hash, or the reason why not."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

from ..connectors.contract import Claim, Scope
from ..connectors.errors import Rejected
from ..connectors.rows import fields_of
from .canonical import encode_fields, to_utf8
from .digest import DIGEST_BYTES, digest_prefix
from .gate import Gate
from .keys import Stamped
from .plan import Plan, make_plan
from .results import Refused

PAYLOAD_HASH_BYTES = 16
MAX_SHAPES = 256
"""How many shapes of records are remembered; a stream of ever new ones starts over."""

_UNKNOWN: Any = object()


class Item(NamedTuple):
    """A record that may enter the gate. `size` is its canonical length in bytes, 0 where that is not known.

    `context` is the binding's own: it comes back with the record's outcome.
    """

    record: Any
    claim: Claim
    size: int = 0
    context: Any = None


class Preparer:
    """Make items of records, for one gate and scope."""

    __slots__ = ("_batch", "_key", "_occurrence", "_payload", "_plans", "_prefix", "_without")

    def __init__(self, gate: Gate, scope: Scope) -> None:
        self._batch = gate.batch
        self._key = gate.key
        self._occurrence = gate.occurrence
        self._payload = gate.payload
        self._prefix = digest_prefix(scope)
        self._without = gate.occurrence.reads if gate.occurrence is not None else frozenset()
        self._plans: dict[tuple[str, ...], Plan | None] = {}

    def __call__(self, record: Any) -> Item | Refused:
        """Return the item, or why the record is refused. The record of a `Stamped` one is what goes on."""
        if type(record) is dict and self._payload == "content":
            item = self._quick(record)
            if item is not None:
                return item
        try:
            return self._prepare(record)
        except Rejected as error:
            return Refused(_bare(record), error.reason, error.detail)

    def _quick(self, record: dict[str, Any]) -> Item | None:
        """Take the record through its shape's plan; None where the recipes must be asked."""
        shape = tuple(record)
        plan = self._plans.get(shape, _UNKNOWN)
        if plan is _UNKNOWN:
            plan = self._learn(shape, record)
        if plan is None:
            return None
        try:
            key, occurrence, content = plan(record)
        except (KeyError, UnicodeEncodeError):
            return None
        if len(key) > self._batch.key_bytes or len(content) > self._batch.record_bytes:
            return None
        claim = Claim(
            blake2b(self._prefix + key, digest_size=DIGEST_BYTES).digest(),
            occurrence,
            blake2b(content, digest_size=PAYLOAD_HASH_BYTES).digest(),
        )
        return Item(record, claim, len(content))

    def _learn(self, shape: tuple[str, ...], record: dict[str, Any]) -> Plan | None:
        if len(self._plans) >= MAX_SHAPES:
            self._plans.clear()
        plan = self._plans[shape] = make_plan(record, self._key, self._occurrence, self._without)
        return plan

    def _prepare(self, record: Any) -> Item:
        occurrence = self._occurrence(record) if self._occurrence is not None else None
        bare = record.record if type(record) is Stamped else record
        key = self._key(bare)
        if len(key) > self._batch.key_bytes:
            raise Rejected("too_large", f"a key of {len(key)} bytes, over key_bytes={self._batch.key_bytes}")
        payload_hash, size = self._hash(bare)
        claim = Claim(blake2b(self._prefix + key, digest_size=DIGEST_BYTES).digest(), occurrence, payload_hash)
        return Item(bare, claim, size)

    def _hash(self, record: Any) -> tuple[bytes | None, int]:
        if self._payload == "none":
            return None, self._bound(_raw_size(record))
        if self._payload == "content":
            content = self._content(record)
        else:
            content = self._payload(record)
        return blake2b(content, digest_size=PAYLOAD_HASH_BYTES).digest(), self._bound(len(content))

    def _bound(self, size: int) -> int:
        if size > self._batch.record_bytes:
            raise Rejected("too_large", f"a record of {size} bytes, over record_bytes={self._batch.record_bytes}")
        return size

    def _content(self, record: Any) -> bytes:
        fields = fields_of(record)
        if self._without:
            fields = {name: fields[name] for name in fields if name not in self._without}
        return to_utf8(encode_fields(fields))


def _raw_size(record: Any) -> int:
    return len(record) if isinstance(record, (bytes, str)) else 0


def _bare(record: Any) -> Any:
    return record.record if type(record) is Stamped else record
