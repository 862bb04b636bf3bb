"""Tell a ledger what was done while it was away: the same calls again, in order, under the same owners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice

from .audit_folder import AuditEntry
from .contract import Finish, LedgerSession, Take

FED_AT_ONCE = 1000

_LEASE_SECONDS = 30.0
"""Of rows that are taken over to be finished at once."""


def feed(ledger: LedgerSession, batch: Sequence[AuditEntry]) -> None:
    """Make the calls of one batch again: entries of one kind, owner and lease. Repeating it changes nothing."""
    did, owner, _, lease_seconds, _, _ = batch[0]
    claims = list({each.claim.digest: each.claim for each in batch}.values())
    if did == "claimed":
        ledger.claim(claims, owner=owner, lease_seconds=lease_seconds)
    elif did == "finished":
        _finish(ledger, {each.claim.digest: Finish(each.claim, each.result) for each in batch}, owner)
    elif did == "released":
        ledger.release([each.digest for each in claims], owner=owner)
    else:
        rows = ledger.read([each.digest for each in claims])
        # The first entry of each: one that was taken and then given another claim was its taker's own by then.
        former = {each.claim.digest: each.former for each in reversed(batch)}
        seen = [(each, rows[each.digest]) for each in claims if each.digest in rows]
        takes = [Take(each.digest, row, each) for each, row in seen if row.owner == former[each.digest]]
        ledger.take(takes, owner=owner, lease_seconds=lease_seconds or 0.0)


def learn(ledger: LedgerSession, entries: Iterator[AuditEntry], trim: Callable[[], object]) -> None:
    """Tell a stand-in what a session that died had done, and let it trim what it remembers."""
    for batch in batches(entries):
        feed(ledger, batch)
        trim()


def _finish(ledger: LedgerSession, finishes: Mapping[bytes, Finish], owner: bytes) -> None:
    """Finish rows, also those that somebody had left open there before: their effects are there, whosever they are."""
    others = ledger.finish(list(finishes.values()), owner=owner)
    rows = ledger.read(list(others)) if others else {}
    takes = [Take(digest, row, finishes[digest].claim) for digest, row in rows.items() if not row.finished]
    if takes:
        taken = ledger.take(takes, owner=owner, lease_seconds=_LEASE_SECONDS)
        ledger.finish([finishes[digest] for digest in taken], owner=owner)


def batches(entries: Iterator[AuditEntry]) -> Iterator[list[AuditEntry]]:
    """Cut entries, in order, into runs of one kind, owner and lease."""
    for _, run in groupby(entries, key=lambda each: (each.did, each.owner, each.lease_seconds)):
        while batch := list(islice(run, FED_AT_ONCE)):
            yield batch
