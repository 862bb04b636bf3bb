"""What every ledger promises, whatever it is made of."""

import os
import pickle
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing

import pytest
from oncesink.connectors.contract import Claim, Finish, Ledger, LedgerSession, Row, Scope, Take, Use
from oncesink.connectors.errors import Misconfigured, OnceSinkError, Unavailable
from oncesink.connectors.upkeep import Forgets, ListsOpen

SCOPE = Scope(name="orders", use=Use.WRITE, meaning={"key": "order_id", "sink": "memory"})
A, B, C = (bytes([number]) * 16 for number in (0xA, 0xB, 0xC))
HASH = bytes(range(16))
LEASE_SECONDS = 60.0


def digest(number: int) -> bytes:
    """Make 16 bytes that hold quotes, backslashes and zeros, in an order that is not the numbers'."""
    return (number * 0x9E3779B1 % 2**32).to_bytes(4, "big") + b"'\\\"%\x00" + number.to_bytes(7, "big")


def claims(*numbers: int, occurrence: bytes | None = b"topic/0/1") -> list[Claim]:
    """Make claims that share their occurrence."""
    return [Claim(digest(number), occurrence, HASH) for number in numbers]


def digests(*numbers: int) -> list[bytes]:
    """Make digests."""
    return [digest(number) for number in numbers]


def lists(session: LedgerSession) -> ListsOpen:
    """Return the session as one that lists its open rows."""
    assert isinstance(session, ListsOpen)
    return session


class LedgerContract(ABC):
    """The suite; each subclass is one ledger."""

    @abstractmethod
    def make(self) -> Ledger:
        """Return a recipe; all recipes of one test lead to one store, empty at its start."""

    @pytest.fixture
    def opened(self) -> Iterator[ExitStack]:
        """Close at the end what a test opened."""
        with ExitStack() as stack:
            yield stack

    @pytest.fixture
    def session(self, opened: ExitStack) -> LedgerSession:
        """Open the ledger."""
        return opened.enter_context(closing(self.make().open(SCOPE)))

    @pytest.fixture
    def other(self, opened: ExitStack) -> LedgerSession:
        """Open the ledger a second time, as another worker does."""
        return opened.enter_context(closing(self.make().open(SCOPE)))

    def test_claims_of_new_keys_are_inserted(self, session: LedgerSession, other: LedgerSession) -> None:
        """Nothing comes back, and everybody sees the rows: open, under a lease."""
        assert session.claim(claims(1, 2), owner=A, lease_seconds=LEASE_SECONDS) == {}
        rows = other.read(digests(1, 2, 3))
        assert set(rows) == set(digests(1, 2))
        row = rows[digest(1)]
        assert row[:6] == (digest(1), False, b"topic/0/1", A, HASH, None)
        assert 0 < row.lease_left_seconds <= LEASE_SECONDS
        assert 0 <= row.age_seconds < LEASE_SECONDS

    def test_a_claim_of_what_is_there_shows_whose_it_is(self, session: LedgerSession, other: LedgerSession) -> None:
        """The first one stays, with its occurrence; the new ones of the same call are inserted and shown too."""
        session.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS)
        rows = other.claim(claims(1, 2, occurrence=b"later"), owner=B, lease_seconds=LEASE_SECONDS)
        assert {one: (row.owner, row.occurrence) for one, row in rows.items()} == {
            digest(1): (A, b"topic/0/1"),
            digest(2): (B, b"later"),
        }

    def test_a_repeated_claim_finds_its_own_rows(self, session: LedgerSession) -> None:
        """After a lost reply the same call shows that it had gone through."""
        session.claim(claims(1, 2), owner=A, lease_seconds=LEASE_SECONDS)
        rows = session.claim(claims(1, 2), owner=A, lease_seconds=LEASE_SECONDS)
        assert {row.owner for row in rows.values()} == {A}
        assert set(rows) == set(digests(1, 2))

    def test_without_a_lease_rows_are_inserted_finished(self, session: LedgerSession) -> None:
        """So a transactional sink and a filter claim."""
        assert session.claim(claims(1), owner=A, lease_seconds=None) == {}
        row = session.read(digests(1))[digest(1)]
        assert (row.finished, row.owner, row.lease_until, row.lease_left_seconds) == (True, A, None, 0.0)
        assert 0 <= row.age_seconds < LEASE_SECONDS

    @pytest.mark.parametrize("occurrence", [None, b"", b"x" * 255, bytes(range(255)), b"a ", "é".encode()])
    @pytest.mark.parametrize("payload_hash", [None, bytes(16), b"\xff" * 16])
    def test_claims_are_kept_byte_by_byte(
        self, session: LedgerSession, occurrence: bytes | None, payload_hash: bytes | None
    ) -> None:
        """None and empty bytes are two things."""
        session.claim([Claim(digest(1), occurrence, payload_hash)], owner=A, lease_seconds=LEASE_SECONDS)
        session.finish([Finish(Claim(digest(1), b"not this", None))], owner=A)
        row = session.read(digests(1))[digest(1)]
        assert (row.occurrence, row.payload_hash) == (occurrence, payload_hash)

    def test_a_lease_of_no_length_is_over_at_once(self, session: LedgerSession) -> None:
        """What is left of a lease is told by the store's clock, and not below the truth."""
        session.claim(claims(1), owner=A, lease_seconds=0.0)
        assert session.read(digests(1))[digest(1)].lease_left_seconds <= 0

    def test_large_batches_keep_every_row_apart(self, session: LedgerSession) -> None:
        """Any number of rows goes through one call, in any order."""
        many = [Claim(digest(number), b"%d" % number, None) for number in range(3000)]
        assert session.claim(many, owner=A, lease_seconds=LEASE_SECONDS) == {}
        rows = session.claim(many, owner=B, lease_seconds=LEASE_SECONDS)
        assert {one: row.occurrence for one, row in rows.items()} == {each.digest: each.occurrence for each in many}
        assert session.finish([Finish(each, each.occurrence) for each in many], owner=A) == set()
        rows = session.read([each.digest for each in many])
        assert {one: row.result for one, row in rows.items()} == {each.digest: each.occurrence for each in many}

    def test_nothing_asked_is_nothing_done(self, session: LedgerSession) -> None:
        """Empty calls are allowed."""
        assert session.claim([], owner=A, lease_seconds=LEASE_SECONDS) == {}
        assert session.read([]) == {}
        assert session.take([], owner=A, lease_seconds=LEASE_SECONDS) == set()
        assert session.finish([], owner=A) == set()
        session.release([], owner=A)

    def test_a_take_over_gives_owner_and_lease(self, session: LedgerSession, other: LedgerSession) -> None:
        """The claim stays as it was; the old owner can neither finish nor release any more."""
        seen = self.claimed(session, 1, lease_seconds=0.0)
        assert other.take([Take(digest(1), seen)], owner=B, lease_seconds=LEASE_SECONDS) == {digest(1)}
        row = self.row(session, 1)
        assert (row.owner, row.occurrence, row.payload_hash) == (B, b"topic/0/1", HASH)
        assert 0 < row.lease_left_seconds <= LEASE_SECONDS
        assert session.finish([Finish(claims(1)[0])], owner=A) == {digest(1)}
        session.release(digests(1), owner=A)
        assert self.row(session, 1)[:6] == row[:6]

    def test_of_two_that_saw_the_same_row_one_takes_it(self, session: LedgerSession, other: LedgerSession) -> None:
        """A take-over is a compare-and-set on owner and lease."""
        seen = self.claimed(session, 1)
        assert session.take([Take(digest(1), seen)], owner=B, lease_seconds=LEASE_SECONDS) == {digest(1)}
        assert other.take([Take(digest(1), seen)], owner=C, lease_seconds=LEASE_SECONDS) == set()
        assert self.row(session, 1).owner == B

    def test_a_lease_that_was_renewed_is_not_taken(self, session: LedgerSession, other: LedgerSession) -> None:
        """The same owner with another lease is not what was seen."""
        seen = self.claimed(session, 1)
        session.take([Take(digest(1), seen)], owner=A, lease_seconds=2 * LEASE_SECONDS)
        assert other.take([Take(digest(1), seen)], owner=B, lease_seconds=LEASE_SECONDS) == set()

    def test_a_repeated_take_over_tells_that_it_went_through(self, session: LedgerSession) -> None:
        """After a lost reply the row is no longer as seen, but it is this owner's."""
        takes = [Take(digest(1), self.claimed(session, 1), Claim(digest(1), b"new", None))]
        session.take(takes, owner=B, lease_seconds=LEASE_SECONDS)
        assert session.take(takes, owner=B, lease_seconds=LEASE_SECONDS) == {digest(1)}
        assert self.row(session, 1).occurrence == b"new"

    def test_a_take_over_may_bring_its_own_claim(self, session: LedgerSession) -> None:
        """Each row gets its own; a row that was not to be taken keeps what it had."""
        seen = {number: self.claimed(session, number) for number in (1, 2, 3)}
        self.taken(session, seen[3], owner=C)
        takes = [
            Take(digest(number), seen[number], Claim(digest(number), b"new %d" % number, None)) for number in (1, 2, 3)
        ]
        assert session.take(takes, owner=B, lease_seconds=LEASE_SECONDS) == set(digests(1, 2))
        rows = session.read(digests(1, 2, 3))
        kept = {one: (row.owner, row.occurrence, row.payload_hash) for one, row in rows.items()}
        assert kept[digest(1)] == (B, b"new 1", None)
        assert kept[digest(2)] == (B, b"new 2", None)
        assert kept[digest(3)] == (C, b"topic/0/1", HASH)

    def test_a_claim_can_be_stored_in_a_row_that_is_owned(self, session: LedgerSession) -> None:
        """So a probe that found nothing goes on: the lease stays as it is, and a row of another stays untouched."""
        before = self.claimed(session, 1)
        self.taken(session, self.claimed(session, 2), owner=C)
        takes = [Take(digest(number), None, Claim(digest(number), b"mine now", None)) for number in (1, 2)]
        assert session.take(takes, owner=A, lease_seconds=10 * LEASE_SECONDS) == {digest(1)}
        row = self.row(session, 1)
        assert (row.occurrence, row.payload_hash, row.owner) == (b"mine now", None, A)
        assert row.lease_until == before.lease_until
        assert self.row(session, 2).occurrence == b"topic/0/1"

    def test_what_is_finished_or_gone_cannot_be_taken(self, session: LedgerSession) -> None:
        """The answer leaves it out, also where it was finished by the taker itself."""
        seen = [self.claimed(session, number) for number in (1, 2, 3)]
        session.finish([Finish(claims(1)[0])], owner=A)
        session.release(digests(2), owner=A)
        takes = [Take(row.digest, row) for row in seen]
        assert session.take(takes, owner=A, lease_seconds=LEASE_SECONDS) == {digest(3)}
        assert self.row(session, 1).finished

    def test_finished_rows_keep_their_claim_and_get_a_result(self, session: LedgerSession) -> None:
        """Every transition keeps every field."""
        results = {1: None, 2: b"", 3: b"\x00id'\\", 4: b"r" * 70_000, 5: b"id"}
        session.claim(claims(*results), owner=A, lease_seconds=LEASE_SECONDS)
        finishes = [Finish(claims(number)[0], result) for number, result in results.items()]
        assert session.finish(finishes, owner=A) == set()
        for number, result in results.items():
            row = self.row(session, number)
            assert row[:7] == (digest(number), True, b"topic/0/1", A, HASH, result, None)
            assert row.lease_left_seconds == 0

    def test_a_repeated_finish_changes_nothing(self, session: LedgerSession) -> None:
        """After a lost reply it is not reported as somebody else's."""
        session.claim(claims(1, 2), owner=A, lease_seconds=LEASE_SECONDS)
        finishes = [Finish(claims(1)[0], b"first"), Finish(claims(2)[0])]
        session.finish(finishes[:1], owner=A)
        assert session.finish(finishes, owner=A) == set()
        assert session.finish([Finish(claims(1)[0], b"second")], owner=A) == set()
        assert self.row(session, 1).result == b"first"

    def test_a_finish_tells_whose_row_is_anothers(self, session: LedgerSession) -> None:
        """Open or finished by another: it stays as it is, and the rest of the call is finished."""
        session.claim(claims(1), owner=B, lease_seconds=LEASE_SECONDS)
        session.claim(claims(2), owner=B, lease_seconds=None)
        session.claim(claims(3), owner=A, lease_seconds=LEASE_SECONDS)
        finishes = [Finish(each, b"mine") for each in claims(1, 2, 3)]
        assert session.finish(finishes, owner=A) == set(digests(1, 2))
        assert [self.row(session, number).finished for number in (1, 2, 3)] == [False, True, True]
        assert [self.row(session, number).result for number in (1, 2, 3)] == [None, None, b"mine"]

    def test_a_finish_inserts_the_row_that_has_gone(self, session: LedgerSession) -> None:
        """Somebody purged or deleted it: the effect is remembered all the same, with its claim."""
        session.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS)
        finishes = [Finish(Claim(digest(number), b"o", HASH), b"result") for number in (1, 2)]
        assert session.finish(finishes, owner=A) == set()
        assert self.row(session, 2)[:7] == (digest(2), True, b"o", A, HASH, b"result", None)
        assert session.finish(finishes, owner=A) == set()

    def test_only_own_open_rows_are_released(self, session: LedgerSession) -> None:
        """Finished ones stay, and so do those of others."""
        session.claim(claims(1, 2), owner=A, lease_seconds=LEASE_SECONDS)
        session.claim(claims(3), owner=B, lease_seconds=LEASE_SECONDS)
        session.finish([Finish(claims(2)[0])], owner=A)
        session.release(digests(1, 2, 3, 4), owner=A)
        session.release(digests(1, 2, 3, 4), owner=A)
        assert set(session.read(digests(1, 2, 3, 4))) == set(digests(2, 3))

    def test_a_key_can_be_forgotten(self, session: LedgerSession, other: LedgerSession) -> None:
        """Finished or open, whoever owned it: then it is new. What was not there is not named; again is harmless."""
        session.claim(claims(1), owner=A, lease_seconds=None)
        session.claim(claims(2, 3), owner=A, lease_seconds=LEASE_SECONDS)
        assert isinstance(other, Forgets)
        assert other.forget(digests(1, 2, 9)) == set(digests(1, 2))
        assert other.forget(digests(1, 2, 9)) == set()
        assert other.forget([]) == set()
        assert set(session.read(digests(1, 2, 3))) == set(digests(3))

    def test_the_ledger_id_belongs_to_scope_and_use(self, session: LedgerSession, other: LedgerSession) -> None:
        """Whoever opens the scope again gets the same one; another use, or another scope, has its own."""
        assert len(session.ledger_id) == 16
        assert session.ledger_id == other.ledger_id
        scopes = [Scope(name="orders", use=Use.DROP), Scope(name="payments", use=Use.WRITE)]
        ids = [self.id_of(scope) for scope in scopes]
        assert len({session.ledger_id, *ids}) == 3

    def test_a_scope_that_changed_its_meaning_is_refused(self) -> None:
        """The error names each item that differs, old and new."""
        self.id_of(SCOPE)
        changed = Scope(name="orders", use=Use.WRITE, meaning={"key": "customer", "sink": "memory", "more": "x"})
        with pytest.raises(Misconfigured) as refused:
            self.make().open(changed)
        for part in ("orders", "order_id", "customer", "more", "generation"):
            assert part in str(refused.value)
        assert "memory" not in str(refused.value)

    def test_a_higher_generation_may_change_the_meaning(self) -> None:
        """It reprocesses on purpose, and nobody goes back; the ledger's id stays."""
        before = self.id_of(SCOPE)
        raised = Scope(name="orders", use=Use.WRITE, generation=2, meaning={"key": "customer"})
        assert self.id_of(raised) == before
        assert self.id_of(raised) == before
        with pytest.raises(Misconfigured, match="generation"):
            self.make().open(SCOPE)
        with pytest.raises(Misconfigured, match="customer"):
            self.make().open(Scope(name="orders", use=Use.WRITE, generation=2, meaning=SCOPE.meaning))

    def test_the_recipe_survives_pickling(self) -> None:
        """It travels to workers and opens there."""
        recipe = self.make()
        again = pickle.loads(pickle.dumps(recipe))
        assert again == recipe
        with closing(again.open(SCOPE)) as session:
            assert session.read(digests(1)) == {}

    def test_close_may_be_repeated(self, session: LedgerSession, opened: ExitStack) -> None:
        """Whoever cleans up twice does no harm: rows stay, and another session goes on."""
        session.claim(claims(1), owner=A, lease_seconds=None)
        session.close()
        session.close()
        again = opened.enter_context(closing(self.make().open(SCOPE)))
        assert set(again.claim(claims(1, 2), owner=B, lease_seconds=None)) == set(digests(1, 2))

    def test_a_row_may_be_given_back_under_a_lease_that_has_ended(self, session: LedgerSession) -> None:
        """Others take it over at once, by the store's own clock; it keeps its claim."""
        row = self.claimed(session, 1)
        assert session.take([Take(digest(1), row)], owner=B, lease_seconds=-5.0) == {digest(1)}
        given = self.row(session, 1)
        assert -6.0 < given.lease_left_seconds <= -5.0
        assert (given.finished, given.owner, given.occurrence) == (False, B, row.occurrence)
        assert session.take([Take(digest(1), given)], owner=C, lease_seconds=LEASE_SECONDS) == {digest(1)}

    def claimed(self, session: LedgerSession, number: int, lease_seconds: float = LEASE_SECONDS) -> Row:
        """Claim a key for A and return the row."""
        assert session.claim(claims(number), owner=A, lease_seconds=lease_seconds) == {}
        return self.row(session, number)

    def taken(self, session: LedgerSession, seen: Row, *, owner: bytes) -> None:
        """Let another owner take a row."""
        assert session.take([Take(seen.digest, seen)], owner=owner, lease_seconds=LEASE_SECONDS) == {seen.digest}

    def row(self, session: LedgerSession, number: int) -> Row:
        """Return the row of a key."""
        return session.read(digests(number))[digest(number)]

    def id_of(self, scope: Scope) -> bytes:
        """Open a scope and return its ledger id."""
        with closing(self.make().open(scope)) as session:
            return session.ledger_id


class ListingLedgerContract(LedgerContract):
    """What holds in addition where open rows can be listed."""

    def test_open_rows_are_listed_by_the_end_of_their_lease(self, session: LedgerSession) -> None:
        """With all that was claimed; what is finished, released, or still under its lease is not there."""
        listing = lists(session)
        session.claim([Claim(digest(1), b"o", HASH, b"record 1")], owner=A, lease_seconds=0.0)
        session.claim([Claim(digest(2), None, None)], owner=B, lease_seconds=0.001)
        session.claim(claims(3, 4), owner=A, lease_seconds=0.0)
        session.claim(claims(5), owner=A, lease_seconds=LEASE_SECONDS)
        session.claim(claims(6), owner=A, lease_seconds=None)
        session.finish([Finish(claims(3)[0])], owner=A)
        session.release(digests(4), owner=A)
        rows = self.overdue(listing, 2)
        assert [row[:6] for row in rows] == [
            (digest(1), False, b"o", A, HASH, None),
            (digest(2), False, None, B, None, None),
        ]
        assert [row.payload for row in rows] == [b"record 1", None]
        assert all(row.lease_left_seconds <= 0 <= row.age_seconds for row in rows)
        assert listing.count_open(older_than_seconds=0.0) == (2, 0)
        assert listing.count_open(older_than_seconds=LEASE_SECONDS) == (0, 0)
        assert listing.open_rows(older_than_seconds=LEASE_SECONDS, limit=9).rows == []

    def test_pages_of_open_rows_follow_each_other(self, session: LedgerSession) -> None:
        """Each row once, whatever becomes of those of earlier pages; some may be skipped."""
        listing = lists(session)
        for part in range(5):
            session.claim(claims(*range(10 * part, 10 * part + 10)), owner=A, lease_seconds=part / 1e6)
        whole = [row.digest for row in self.overdue(listing, 50)]
        assert len(set(whole)) == 50
        first = listing.open_rows(older_than_seconds=0.0, limit=7)
        session.finish([Finish(Claim(one, None, None)) for one in whole[:7]], owner=A)
        found, after = [row.digest for row in first.rows], first.after
        while after is not None:
            page = listing.open_rows(older_than_seconds=0.0, limit=7, after=after)
            found, after = found + [row.digest for row in page.rows], page.after
        assert found == whole
        skipped = listing.open_rows(older_than_seconds=0.0, limit=7, skip=9)
        assert [row.digest for row in skipped.rows] == whole[16:23]

    def test_the_row_that_was_listed_can_be_taken(self, session: LedgerSession, other: LedgerSession) -> None:
        """By one; then it is off the list for as long as the new lease lasts, and its payload stays."""
        session.claim([Claim(digest(1), b"o", HASH, b"record")], owner=A, lease_seconds=0.0)
        (seen,) = self.overdue(lists(other), 1)
        assert other.take([Take(digest(1), seen)], owner=B, lease_seconds=LEASE_SECONDS) == {digest(1)}
        assert session.take([Take(digest(1), seen)], owner=C, lease_seconds=LEASE_SECONDS) == set()
        assert lists(session).open_rows(older_than_seconds=0.0, limit=9).rows == []
        other.take([Take(digest(1), self.row(other, 1))], owner=B, lease_seconds=0.0)
        (again,) = self.overdue(lists(session), 1)
        assert again[:6] == (digest(1), False, b"o", B, HASH, None)
        assert again.payload == b"record"

    @pytest.mark.parametrize("payload", [None, b"", b"\x00'\\ new", b"r" * 70_000])
    def test_occurrence_hash_and_payload_change_together(self, session: LedgerSession, payload: bytes | None) -> None:
        """A row never bears one delivery's occurrence and another one's record, not even where that is not stored."""
        session.claim([Claim(digest(1), b"o", HASH, b"record")], owner=A, lease_seconds=0.0)
        (seen,) = self.overdue(lists(session), 1)
        new = Claim(digest(1), b"other", None, payload)
        session.take([Take(digest(1), seen, new)], owner=B, lease_seconds=0.0)
        (row,) = self.overdue(lists(session), 1)
        assert (row.occurrence, row.payload_hash, row.payload) == (b"other", None, payload)
        session.take([Take(digest(1), None, Claim(digest(1), b"third", HASH, b"3"))], owner=B, lease_seconds=0.0)
        (row,) = self.overdue(lists(session), 1)
        assert (row.occurrence, row.payload_hash, row.payload) == (b"third", HASH, b"3")

    def test_a_payload_does_not_come_into_the_result(self, session: LedgerSession) -> None:
        """Finished with and without a result, claimed open and finished: each field by itself."""
        stored = [Claim(digest(number), b"o", HASH, b"record") for number in (1, 2, 3)]
        session.claim(stored[:2], owner=A, lease_seconds=LEASE_SECONDS)
        session.claim(stored[2:], owner=A, lease_seconds=None)
        session.finish([Finish(stored[0], b"result"), Finish(stored[1])], owner=A)
        rows = [self.row(session, number) for number in (1, 2, 3)]
        assert [row[:6] for row in rows] == [
            (digest(number), True, b"o", A, HASH, result) for number, result in ((1, b"result"), (2, None), (3, None))
        ]

    def test_open_rows_of_older_generations_are_counted_only(self, session: LedgerSession) -> None:
        """Nobody redrives what was left behind on purpose; rows of another scope do not show at all."""
        session.claim(claims(1), owner=A, lease_seconds=0.0)
        with closing(self.make().open(Scope(name="payments", use=Use.WRITE))) as strange:
            strange.claim(claims(2), owner=A, lease_seconds=0.0)
        raised = Scope(name="orders", use=Use.WRITE, generation=3, meaning=SCOPE.meaning)
        with closing(self.make().open(raised)) as later:
            later.claim(claims(4), owner=A, lease_seconds=0.0)
            assert [row.digest for row in self.overdue(lists(later), 1)] == digests(4)
            assert lists(later).count_open(older_than_seconds=0.0) == (1, 1)

    def overdue(self, session: ListsOpen, wanted: int) -> list[Row]:
        """List all, once the store's clock has moved behind the leases of no length."""
        for _ in range(1000):
            page = session.open_rows(older_than_seconds=0.0, limit=1000)
            if len(page.rows) == wanted:
                assert page.after is None
                return list(page.rows)
            time.sleep(0.001)
        raise AssertionError(f"{len(page.rows)} rows are listed, not {wanted}")


class TransactionalLedgerContract(LedgerContract):
    """What holds in addition where a sink can write in the ledger's own transaction."""

    def test_a_transaction_commits_at_its_end(self, session: LedgerSession, other: LedgerSession) -> None:
        """Until then nobody else sees its rows."""
        with session.transaction():
            assert session.claim(claims(1), owner=A, lease_seconds=None) == {}
            assert session.claim(claims(1, 2), owner=A, lease_seconds=None).keys() == set(digests(1, 2))
            assert other.read(digests(1, 2)) == {}
        assert set(other.read(digests(1, 2))) == set(digests(1, 2))

    def test_an_error_rolls_a_transaction_back(self, session: LedgerSession, other: LedgerSession) -> None:
        """All of it; the error arrives as it was, and the session goes on."""
        with pytest.raises(ZeroDivisionError):
            self.claim_and_fail(session)
        assert other.read(digests(1, 2)) == {}
        assert session.claim(claims(1), owner=A, lease_seconds=LEASE_SECONDS) == {}

    def claim_and_fail(self, session: LedgerSession) -> None:
        """Raise inside a transaction."""
        with session.transaction():
            session.claim(claims(1, 2), owner=A, lease_seconds=None)
            raise ZeroDivisionError

    def test_transactions_do_not_nest(self, session: LedgerSession, other: LedgerSession) -> None:
        """An inner one would commit what the outer one may still undo."""
        with pytest.raises(Misconfigured):
            self.claim_and_nest(session)
        assert other.read(digests(1)) == {}

    def claim_and_nest(self, session: LedgerSession) -> None:
        """Begin a transaction inside a transaction."""
        with session.transaction():
            session.claim(claims(1), owner=A, lease_seconds=None)
            with session.transaction():
                pytest.fail("the block must not run")


class PlainLedgerContract(LedgerContract):
    """What holds in addition where there are no transactions."""

    def test_a_ledger_without_transactions_says_so(self, session: LedgerSession) -> None:
        """It must not pretend."""
        with pytest.raises(Misconfigured), session.transaction():
            pytest.fail("the block must not run")


class ConcurrentLedgerContract(LedgerContract):
    """What holds in addition where several workers share the ledger at the same time."""

    def test_of_many_that_claim_at_once_one_gets_each_key(self) -> None:
        """Batches overlap and come in different orders; each key has exactly one owner, and everybody is told who."""
        workers, numbers = 4, range(400)
        start, answers = threading.Barrier(workers), dict[bytes, dict[bytes, Row]]()

        def work(worker: int) -> None:
            owner = bytes([worker]) * 16
            with closing(self.make().open(SCOPE)) as session:
                start.wait()
                answers[owner] = {}
                for part in range(0, len(numbers), 40):
                    wanted = claims(*(numbers[part : part + 40][:: 1 if worker % 2 else -1]))
                    answers[owner] |= self.patiently(session, wanted, owner)

        self.run_all([threading.Thread(target=work, args=(worker,)) for worker in range(workers)])
        with closing(self.make().open(SCOPE)) as session:
            owners = {one: row.owner for one, row in session.read(digests(*numbers)).items()}
        assert set(owners) == set(digests(*numbers))
        for told in answers.values():
            assert {one: row.owner for one, row in told.items()} == owners

    def patiently(self, session: LedgerSession, wanted: Sequence[Claim], owner: bytes) -> dict[bytes, Row]:
        """Claim as the gate does, again after `Unavailable`, and return whose each row is."""
        for _ in range(50):
            try:
                rows = session.claim(wanted, owner=owner, lease_seconds=LEASE_SECONDS)
            except Unavailable:
                continue
            return dict(rows or session.read([each.digest for each in wanted]))
        raise AssertionError("unavailable 50 times")

    def run_all(self, threads: Sequence[threading.Thread]) -> None:
        """Start and join threads."""
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    def test_scopes_may_be_opened_at_once(self) -> None:
        """The first workers of a job start together: one row, one id, no error."""
        ids, errors = list[bytes](), list[OnceSinkError]()
        start = threading.Barrier(4)

        def work() -> None:
            start.wait()
            try:
                ids.append(self.id_of(Scope(name=name, use=Use.WRITE, meaning={"key": "x"})))
            except OnceSinkError as error:
                errors.append(error)

        name = f"fresh-{os.getpid()}"
        self.run_all([threading.Thread(target=work) for _ in range(4)])
        assert errors == []
        assert len(set(ids)) == 1
