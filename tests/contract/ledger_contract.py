"""What every ledger promises, whatever it is made of."""

import os
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing

import pytest
from oncesink.connectors.contract import Claim, Finish, Ledger, LedgerSession, Row, Scope, Take, Use
from oncesink.connectors.errors import Misconfigured, OnceSinkError, Unavailable

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

    def test_close_may_be_repeated(self, session: LedgerSession) -> None:
        """Whoever cleans up twice does no harm."""
        session.close()
        session.close()

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
