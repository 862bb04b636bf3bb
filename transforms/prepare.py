"""From records to items: key, digest, occurrence and payload hash, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import repeat
from typing import Any, NamedTuple

from ..connectors.contract import Claim, Scope
from ..connectors.errors import Rejected
from ..connectors.rows import fields_of
from .canonical import encode_fields, to_utf8
from .digest import DIGEST_BYTES, digest, digest_prefix
from .gate import Gate
from .keys import ByStamp, Stamped
from .membership import NumericRecipe
from .plan import Irregular, Plan, make_plan, plannable
from .results import Refused

PAYLOAD_HASH_BYTES = 16
MAX_SHAPES = 256
"""How many shapes of records are remembered; a stream of ever new ones starts over."""
SMALL = 16
"""Fewer records than this are not worth a plan."""


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

    __slots__ = (
        "_batch",
        "_key",
        "_number_of",
        "_occurrence",
        "_payload",
        "_plannable",
        "_planned_without",
        "_plans",
        "_prefix",
        "_stamp_is_key",
        "_without",
    )

    def __init__(self, gate: Gate, scope: Scope) -> None:
        self._batch = gate.batch
        self._key = gate.key
        self._stamp_is_key = isinstance(gate.key, ByStamp)
        self._occurrence = gate.occurrence
        # The hash stands in ledger rows: without a ledger nobody would ever compare it.
        self._payload = gate.payload if gate.ledger is not None else "none"
        self._prefix = digest_prefix(scope)
        self._without = gate.occurrence.reads if gate.occurrence is not None else frozenset()
        self._planned_without = self._without if self._payload == "content" else None
        # A filter over numbers cannot be asked about a record without one.
        self._number_of = gate.membership.number_of if isinstance(gate.membership, NumericRecipe) else None
        self._plannable = isinstance(self._payload, str) and plannable(gate.key, gate.occurrence)
        self._plans: dict[frozenset[str], Plan | None] = {}

    def __call__(self, record: Any) -> Item | Refused:
        """Return the item, or why the record is refused. The record of a `Stamped` one is what goes on."""
        try:
            return self._prepare(record)
        except Rejected as error:
            return Refused(bare(record), error.reason, error.detail)

    def digest(self, record: Any) -> bytes:
        """Return the digest alone, where nothing but the shard is asked for. Raises `Rejected`."""
        return digest(self._prefix, self._key(record if self._stamp_is_key else bare(record)))

    def batch(self, records: Sequence[Any]) -> list[Item | Refused]:
        """Prepare many at once: the same answers, in order, sooner where the records are flat and of one shape."""
        if not records or not self._plannable:
            return [self(record) for record in records]
        try:
            rows = _rows(records)
            plan = self._plan(rows[0])
            return [self(record) for record in records] if plan is None else self._planned(plan, rows, records)
        except Irregular:
            return self._halves(records)

    def _halves(self, records: Sequence[Any]) -> list[Item | Refused]:
        """Go on in halves, so that one odd record does not slow the whole batch down."""
        if len(records) < SMALL:
            return [self(record) for record in records]
        middle = len(records) // 2
        return self.batch(records[:middle]) + self.batch(records[middle:])

    def _plan(self, row: dict[str, Any]) -> Plan | None:
        try:
            shape = frozenset(row)
            return self._plans[shape]
        except KeyError:
            return self._learn(shape, row)

    def _learn(self, shape: frozenset[str], row: dict[str, Any]) -> Plan | None:
        if len(self._plans) >= MAX_SHAPES:
            self._plans.clear()
        plan = self._plans[shape] = make_plan(row, self._key, self._occurrence, self._planned_without)
        return plan

    def _planned(self, plan: Plan, rows: Sequence[dict[str, Any]], records: Sequence[Any]) -> list[Item | Refused]:
        keys, occurrences, contents = plan(rows)
        sizes = list(map(_raw_size, records)) if contents is None else list(map(len, contents))
        if max(map(len, keys)) > self._batch.key_bytes or max(sizes) > self._batch.record_bytes:
            raise Irregular
        # As `digest` does, without a call for each.
        prefix = self._prefix
        digests = [blake2b(prefix + key, digest_size=DIGEST_BYTES).digest() for key in keys]
        hashes = [blake2b(content, digest_size=PAYLOAD_HASH_BYTES).digest() for content in contents or ()]
        nothing = repeat(None)
        claims = map(_new_claim, zip(digests, occurrences or nothing, hashes or nothing, nothing, strict=False))
        items: list[Item | Refused] = list(map(_new_item, zip(records, claims, sizes, repeat(None), strict=False)))
        return items if self._number_of is None else list(map(self._numbered, records, items))

    def _numbered(self, record: Any, item: Item | Refused) -> Item | Refused:
        assert self._number_of is not None
        try:
            self._number_of(record)
        except Rejected as error:
            return Refused(record, error.reason, error.detail)
        return item

    def _prepare(self, record: Any) -> Item:
        occurrence = self._occurrence(record) if self._occurrence is not None else None
        stamped, record = record, bare(record)
        key = self._key(stamped if self._stamp_is_key else record)
        if len(key) > self._batch.key_bytes:
            raise Rejected("too_large", f"a key of {len(key)} bytes, over key_bytes={self._batch.key_bytes}")
        if self._number_of is not None:
            self._number_of(record)
        payload_hash, size = self._hash(record)
        claim = Claim(digest(self._prefix, key), occurrence, payload_hash)
        return Item(record, claim, size)

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


def _rows(records: Sequence[Any]) -> Sequence[dict[str, Any]]:
    """Return the fields of each record, read once. Raises `Irregular`."""
    kinds = set(map(type, records))
    if kinds == {dict}:
        return records
    if Stamped in kinds:
        raise Irregular
    try:
        rows = list(map(fields_of, records))
    except Rejected as error:
        raise Irregular from error
    if set(map(type, rows)) != {dict}:
        raise Irregular
    return rows  # type: ignore[return-value]


def _raw_size(record: Any) -> int:
    return len(record) if isinstance(record, (bytes, str)) else 0


def bare(record: Any) -> Any:
    """Return what goes on: the record without its stamp."""
    return record.record if type(record) is Stamped else record


# NamedTuples made by `map` without a Python frame for each.
_new_claim: Callable[[Iterable[Any]], Claim] = partial(tuple.__new__, Claim)
_new_item: Callable[[Iterable[Any]], Item] = partial(tuple.__new__, Item)
