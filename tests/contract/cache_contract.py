"""What every cache promises. A subclass gives the recipe and lets its time pass."""

import pickle
from abc import ABC, abstractmethod
from datetime import timedelta

import pytest
from oncesink.connectors.contract import Cache, CacheSession, Entry
from oncesink.connectors.upkeep import Forgets

TTL = timedelta(seconds=60)
LEDGER = bytes(range(16))
OTHER_LEDGER = bytes(range(16, 32))
HASH = bytes(range(100, 116))


def digest(number: int) -> bytes:
    """Return a digest in which bytes stand that a text protocol might trip over."""
    return b"\r\n\x00$*" + number.to_bytes(11, "big")


class CacheContract(ABC):
    """The suite; each subclass is one cache."""

    @abstractmethod
    def make(self) -> Cache:
        """Return a recipe whose `ttl` is `TTL`."""

    @abstractmethod
    def elapse(self, seconds: float) -> None:
        """Let time pass, as the cache's own clock sees it."""

    @pytest.fixture
    def session(self) -> CacheSession:
        """Open the cache."""
        return self.make().open(LEDGER)

    def test_nothing_is_there_at_first(self, session: CacheSession) -> None:
        """A miss is an absence in the mapping, whatever is asked."""
        assert session.get([]) == {}
        assert session.get([digest(1), digest(2)]) == {}

    @pytest.mark.parametrize(
        "entry",
        [
            Entry(None, None, None),
            Entry(b"", None, b""),
            Entry(b"orders/3/17", HASH, None),
            Entry(b"orders/3/17", HASH, b""),
            Entry(None, HASH, b"\x00result\r\n"),
            Entry(bytes(range(255)), None, bytes(range(256)) * 400),
        ],
    )
    def test_what_was_put_comes_back_byte_by_byte(self, session: CacheSession, entry: Entry) -> None:
        """None and empty bytes are two things in each field."""
        session.put({digest(1): entry})
        assert session.get([digest(1)]) == {digest(1): entry}

    def test_only_what_is_asked_comes_back(self, session: CacheSession) -> None:
        """A large batch keeps every answer with its own digest."""
        entries = {digest(n): Entry(b"%d" % n, HASH, b"%d" % n if n % 3 == 0 else None) for n in range(3000)}
        session.put(entries)
        asked = [digest(n) for n in range(1000, 4000, 2)]
        assert session.get(asked) == {one: entries[one] for one in asked if one in entries}

    def test_ledgers_do_not_see_each_other(self, session: CacheSession) -> None:
        """Entries of a ledger that was emptied and drawn anew answer nobody."""
        session.put({digest(1): Entry(b"a", HASH, None)})
        assert self.make().open(OTHER_LEDGER).get([digest(1)]) == {}

    def test_an_entry_ends_with_its_time_to_live(self, session: CacheSession) -> None:
        """It must be gone before its row can be purged."""
        session.put({digest(1): Entry(b"a", HASH, None)})
        self.elapse(TTL.total_seconds() - 5)
        assert digest(1) in session.get([digest(1)])
        self.elapse(5)
        assert session.get([digest(1)]) == {}

    def test_time_to_live_counts_from_the_finish(self, session: CacheSession) -> None:
        """A refill from an old row does not begin a new life; entries of several ages in one call keep their own."""
        ages = {digest(n): float(n) for n in (0, 20, 40)}
        session.put({one: Entry(b"a", HASH, None, age) for one, age in ages.items()})
        assert session.get(list(ages)) == dict.fromkeys(ages, Entry(b"a", HASH, None))
        self.elapse(TTL.total_seconds() - 35)
        assert set(session.get(list(ages))) == {digest(0), digest(20)}
        self.elapse(20)
        assert set(session.get(list(ages))) == {digest(0)}

    def test_an_entry_that_is_too_old_is_not_kept(self, session: CacheSession) -> None:
        """Its time was over before it came."""
        session.put({digest(1): Entry(b"a", HASH, None, TTL.total_seconds()), digest(2): Entry(b"b", HASH, None, 1e9)})
        assert session.get([digest(1), digest(2)]) == {}

    def test_reading_does_not_lengthen_a_life(self, session: CacheSession) -> None:
        """A key that is asked all the time is forgotten all the same."""
        session.put({digest(1): Entry(b"a", HASH, None)})
        self.elapse(TTL.total_seconds() - 5)
        session.get([digest(1)])
        self.elapse(5)
        assert session.get([digest(1)]) == {}

    def test_a_later_put_replaces(self, session: CacheSession) -> None:
        """A row that was finished anew is told as it is now."""
        session.put({digest(1): Entry(b"a", HASH, b"1")})
        session.put({})
        session.put({digest(1): Entry(b"b", None, None)})
        assert session.get([digest(1)]) == {digest(1): Entry(b"b", None, None)}

    def test_a_key_can_be_forgotten(self, session: CacheSession) -> None:
        """The others stay; what was not there is not named, and again is harmless."""
        assert isinstance(session, Forgets)
        session.put({digest(1): Entry(b"a", HASH, None), digest(2): Entry(b"b", HASH, None)})
        assert session.forget([digest(1), digest(3)]) == {digest(1)}
        assert session.forget([digest(1), digest(3)]) == set()
        assert set(session.get([digest(1), digest(2)])) == {digest(2)}

    def test_the_recipe_survives_pickling(self) -> None:
        """It travels to workers and opens there."""
        recipe = self.make()
        again = pickle.loads(pickle.dumps(recipe))
        assert again == recipe
        assert again.ttl == TTL
        assert again.open(LEDGER).get([digest(1)]) == {}

    def test_close_may_be_repeated(self, session: CacheSession) -> None:
        """Whoever cleans up twice does no harm: another session goes on."""
        session.close()
        session.close()
        again = self.make().open(LEDGER)
        again.put({digest(1): Entry(b"o", HASH, None)})
        assert set(again.get([digest(1)])) == {digest(1)}
        again.close()
