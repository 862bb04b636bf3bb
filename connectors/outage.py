"""A ledger that may be away: records are written without it, audited first, and it is told when it is back.

While it is away a ledger in this session's memory stands in for it: it recognises what this session itself has met, so
that replays, leases and `on_replay` go on as ever. What it cannot know is what others did. Each change is on disk
before the sink is called. Feeding it back makes the same calls again, in order, under the same owners:

    died after        the next session, or this one, feeds back
    audit: claimed    a claim under its own lease: in doubt, `on_replay` decides when that is over
    sink called       the same
    audit: finished   a finished row
    some of it fed    the same calls once more: a ledger's verbs may be repeated under their owner
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from .audit_feed import batches, feed, learn
from .audit_folder import AuditEntry, AuditFile, AuditFolder, Did
from .audit_locks import AuditTrouble
from .breaker import Breaker
from .clock import Clock
from .contract import Claim, Finish, Row, Scope, Take
from .errors import OnceSinkError, OutcomeUnknown, Unavailable
from .memory import MemoryLedgerSession, MemoryStore
from .upkeep import OpenCount, OpenPage

T = TypeVar("T")

log = logging.getLogger("oncesink")

Away = (Unavailable, OutcomeUnknown)

REMEMBERED_ROWS = 100_000
"""How many finished rows the stand-in keeps: beyond that a duplicate within an outage is written again."""


class OutageSession:
    """A session of a ledger that guards when it can. `prove` is called before it guards again after a blind start."""

    def __init__(
        self,
        inner: Any,
        scope: Scope,
        audit: AuditFolder,
        *,
        breaker: Breaker,
        clock: Clock,
        quick_seconds: float = 0.5,
        blind: Exception | None = None,
        prove: Callable[[], object] | None = None,
    ) -> None:
        self.unguarded = 0
        """Claims that were made without the ledger."""
        self._inner = inner
        self._scope = scope
        self._audit = audit
        self._breaker = breaker
        self._clock = clock
        self._quick_seconds = quick_seconds
        self._prove = prove or _nothing
        self._file: AuditFile | None = None
        self._alone: MemoryLedgerSession | None = None
        self._store = MemoryStore()
        self._learned: set[Path] = set()
        if blind is None:
            try:
                self._feed_back()
            except Away as error:
                blind = error
        if blind is not None:
            self._leave(blind)

    @property
    def ledger_id(self) -> bytes:
        ledger_id: bytes = self._inner.ledger_id
        return ledger_id

    def claim(self, claims: Sequence[Claim], *, owner: bytes, lease_seconds: float | None) -> Mapping[bytes, Row]:
        if self._guards():
            try:
                return self._asked(lambda: self._inner.claim(claims, owner=owner, lease_seconds=lease_seconds))
            except Away as error:
                self._leave(error)
        alone = self._stand_in()
        there = alone.read([each.digest for each in claims])
        new = [each for each in claims if each.digest not in there]
        self._write("claimed", new, owner, lease_seconds=lease_seconds)
        self.unguarded += len(new)
        rows = alone.claim(claims, owner=owner, lease_seconds=lease_seconds)
        self._forget_oldest()
        return rows

    def read(self, digests: Sequence[bytes]) -> Mapping[bytes, Row]:
        if self._guards():
            try:
                return self._asked(lambda: self._inner.read(digests))
            except Away as error:
                self._leave(error)
        return self._stand_in().read(digests)

    def take(self, takes: Sequence[Take], *, owner: bytes, lease_seconds: float) -> set[bytes]:
        if self._alone is None:
            try:
                return self._asked(lambda: self._inner.take(takes, owner=owner, lease_seconds=lease_seconds))
            except Away as error:
                # Rows that were seen there cannot be taken here: they are asked for once more.
                self._leave(error)
                return set()
        alone = self._stand_in()
        before = alone.read([each.digest for each in takes])
        taken = alone.take(takes, owner=owner, lease_seconds=lease_seconds)
        # A call that is repeated, since its lines did not get to disk, finds its own rows: `former` is whose they were.
        entries = [
            AuditEntry("taken", owner, each.claim or _claim_of(row), lease_seconds, former=(each.row or row).owner)
            for each in takes
            if each.digest in taken and (row := before[each.digest])
        ]
        self._append(entries)
        return taken

    def finish(self, finishes: Sequence[Finish], *, owner: bytes) -> set[bytes]:
        if self._alone is None:
            try:
                return self._asked(lambda: self._inner.finish(finishes, owner=owner))
            except Away as error:
                self._leave(error)
        # Disk first: a replay must not be told that all is finished while the ledger will be told of a claim only.
        self._append([AuditEntry("finished", owner, claim, result=result) for claim, result in finishes])
        return self._stand_in().finish(finishes, owner=owner)

    def release(self, digests: Sequence[bytes], *, owner: bytes) -> None:
        if self._alone is None:
            try:
                self._asked(lambda: self._inner.release(digests, owner=owner))
            except Away as error:
                self._leave(error)
            else:
                return
        self._write("released", [Claim(digest, None, None) for digest in digests], owner)
        self._stand_in().release(digests, owner=owner)

    def transaction(self) -> AbstractContextManager[None]:
        transaction: AbstractContextManager[None] = self._inner.transaction()
        return transaction

    def close(self) -> None:
        """Feed back what may be fed now; the rest waits in its file for the next session. Safe to repeat."""
        try:
            self._guards()
        except (OnceSinkError, OSError):
            log.warning("the audit in %r is fed back by the next session", self._audit, exc_info=True)
        if self._file is not None:
            self._file.close()
            self._file = None
        self._inner.close()

    def open_rows(
        self, *, older_than_seconds: float, limit: int, after: object | None = None, skip: int = 0
    ) -> OpenPage:
        self._require()
        page: OpenPage = self._inner.open_rows(
            older_than_seconds=older_than_seconds, limit=limit, after=after, skip=skip
        )
        return page

    def count_open(self, *, older_than_seconds: float) -> OpenCount:
        self._require()
        count: OpenCount = self._inner.count_open(older_than_seconds=older_than_seconds)
        return count

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        forgotten: set[bytes] = self._inner.forget(digests)
        return forgotten

    def _asked(self, call: Callable[[], T]) -> T:
        """Call, and once more where it failed at once: a connection that was cut is no outage, a time-out is."""
        started = time.monotonic()
        try:
            return call()
        except Away:
            if time.monotonic() - started > self._quick_seconds:
                raise
        return call()

    def _guards(self) -> bool:
        """Whether the ledger may be asked: it is there, or back, and knows all that was done without it."""
        if self._alone is None:
            return True
        if self._breaker.left_seconds > 0:
            return False
        try:
            fed = self._feed_back()
        except Away as error:
            self._breaker.failed()
            self._look_again(error)
            return False
        self._breaker.succeeded()
        self._alone = None
        log.warning("the ledger of scope %r guards again: %d changes were fed back", self._scope.name, fed)
        return True

    def _require(self) -> None:
        """Return if the ledger itself may be asked: rows that it lists could not be taken in the stand-in."""
        if not self._guards():
            raise Unavailable("the ledger is away and left alone for a while")

    def _leave(self, error: Exception) -> None:
        self._breaker.failed()
        if self._alone is None:
            self._store = MemoryStore()
            self._store.clock = self._clock
            self._learned = set()
            alone = MemoryLedgerSession(self._store, self.ledger_id, self._scope)
            self._learn(alone)
            self._alone = alone
            log.warning(
                "the ledger of scope %r is away (%s): records are written at least once, with an audit in %r",
                self._scope.name,
                error,
                self._audit,
            )

    def _learn(self, alone: MemoryLedgerSession) -> None:
        """Let the stand-in know what sessions that died have left: the ledger will know it, and has not been told."""
        for file in self._audit.left_behind():
            with closing(file):
                if file.path not in self._learned:
                    learn(alone, file.entries(), self._forget_oldest)
                    self._learned.add(file.path)

    def _look_again(self, error: Exception) -> None:
        """Learn what was left since, or say why nothing is fed back or learned though records go on."""
        try:
            if isinstance(error, AuditTrouble):
                raise error
            self._learn(self._stand_in())
        except AuditTrouble as trouble:
            log.warning("records are written at least once until this is mended: %s", trouble)

    def _stand_in(self) -> MemoryLedgerSession:
        assert self._alone is not None
        return self._alone

    def _write(self, did: Did, claims: Iterable[Claim], owner: bytes, *, lease_seconds: float | None = None) -> None:
        self._append([AuditEntry(did, owner, each, lease_seconds) for each in claims])

    def _append(self, entries: Sequence[AuditEntry]) -> None:
        if entries:
            self._file = self._file or self._audit.create()
            self._file.append(entries)

    def _feed_back(self) -> int:
        """Feed back this session's file and those of sessions that died; return how many changes."""
        self._prove()
        fed = sum([self._feed(each) for each in self._audit.orphans()])
        if self._file is not None:
            fed += self._feed(self._file)
            self._file = None
        self._prove = _nothing
        return fed

    def _feed(self, file: AuditFile) -> int:
        fed = 0
        try:
            for batch in batches(file.entries()):
                feed(self._inner, batch)
                fed += len(batch)
        except BaseException:
            if file is not self._file:
                file.close()
            raise
        file.retire()
        return fed

    def _forget_oldest(self) -> None:
        rows = self._store.rows
        if len(rows) > 2 * REMEMBERED_ROWS:
            old = list(islice(rows, len(rows) - REMEMBERED_ROWS))
            for digest in old:
                if rows[digest].finished:
                    del rows[digest]

    def __repr__(self) -> str:
        state = "guards" if self._alone is None else "away"
        return f"<{type(self).__name__} {state} unguarded={self.unguarded} {self._breaker!r} {self._inner!r}>"


def _claim_of(row: Row) -> Claim:
    return Claim(row.digest, row.occurrence, row.payload_hash)


def _nothing() -> None:
    """Prove nothing."""
