"""The bounds of the in-process cache; the rest is the contract."""

from datetime import timedelta

import pytest
from oncesink.connectors.contract import Entry
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.lru_cache import LRUCache

LEDGER = bytes(16)


def digests(*numbers: int) -> list[bytes]:
    """Return digests by number."""
    return [number.to_bytes(16, "big") for number in numbers]


def test_the_entries_used_last_stay() -> None:
    """The bound holds after each put, and reading counts as use."""
    session = LRUCache(ttl=timedelta(hours=1), entries=3).open(LEDGER)
    for one in digests(1, 2, 3):
        session.put({one: Entry(one, None, None)})
    session.get(digests(1))
    session.put(dict.fromkeys(digests(4), Entry(b"4", None, None)))
    assert set(session.get(digests(1, 2, 3, 4))) == set(digests(1, 3, 4))


def test_a_put_larger_than_the_bound_keeps_its_end() -> None:
    """Memory stays bounded whatever the batch."""
    session = LRUCache(ttl=timedelta(hours=1), entries=2).open(LEDGER)
    session.put(dict.fromkeys(digests(*range(100)), Entry(None, None, None)))
    assert set(session.get(digests(*range(100)))) == set(digests(98, 99))


@pytest.mark.parametrize(("ttl", "entries"), [(timedelta(0), 1), (timedelta(seconds=-1), 1), (timedelta(seconds=1), 0)])
def test_useless_bounds_are_refused(ttl: timedelta, entries: int) -> None:
    """A cache that keeps nothing is a mistake."""
    with pytest.raises(Misconfigured):
        LRUCache(ttl=ttl, entries=entries)
