"""Forget keys of a filter: so that what was dropped behind it for good may pass once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..connectors.contract import Cache
from ..connectors.errors import Misconfigured, OnceSinkError, Unavailable
from ..connectors.upkeep import Forgets
from .digest import DIGEST_BYTES, digest, digest_prefix
from .gate import Gate, drop_rules, drop_scope


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """Digests whose row, and whose cache entry, were there. `caches_last` is how long another entry may live on."""

    rows: set[bytes]
    entries: set[bytes]
    caches_last: timedelta | None


def digests_of(gate: Gate, records: Iterable[Any]) -> list[bytes]:
    """Return the digests of records, by the gate's key. Raises `Rejected` for one without a key."""
    prefix = digest_prefix(drop_scope(gate))
    return [digest(prefix, gate.key(each)) for each in records]


def parse_digest(text: str) -> bytes:
    """Read a digest: 32 hexadecimal digits. Raises `Misconfigured`."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != DIGEST_BYTES:
        raise Misconfigured(f"a digest has {2 * DIGEST_BYTES} hexadecimal digits, not {text!r}")
    return found


def forget(gate: Gate, digests: Sequence[bytes]) -> Forgotten:
    """Delete rows, then cache entries, of a `DropDuplicates`. Repeating it before they come again is harmless.

    In this order, since an entry that went first could be put back by whoever finds the row. An entry in the memory of
    another process lives on, and so does one that a worker is about to write: for the cache's time to live at most.
    Raises `Unavailable` where the cache could not be reached: the rows are gone then.
    """
    drop_rules(gate)
    assert gate.ledger is not None
    with closing(gate.ledger.open(drop_scope(gate))) as ledger:
        if not isinstance(ledger, Forgets):
            raise Misconfigured(f"{gate.ledger!r} cannot forget a key")
        rows = ledger.forget(digests)
        entries = set() if gate.cache is None else _out_of_cache(gate.cache, ledger.ledger_id, digests)
    return Forgotten(rows=rows, entries=entries, caches_last=None if gate.cache is None else gate.cache.ttl)


def _out_of_cache(cache: Cache, ledger_id: bytes, digests: Sequence[bytes]) -> set[bytes]:
    with closing(cache.open(ledger_id)) as session:
        if not isinstance(session, Forgets):
            return set()
        try:
            return session.forget(digests)
        except OnceSinkError as error:
            raise Unavailable(f"the rows are gone, the cache's entries are not: {error}; run it again") from error
