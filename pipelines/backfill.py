"""`oncesink backfill`: the keys of a table that is there already, as finished rows of the ledger."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncesink.connectors.contract import Claim, LedgerSession, ProvesFirst
from oncesink.connectors.errors import Misconfigured
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.table_records import Records, Source
from oncesink.pipelines.table_walk import PAGE_ROWS, walk
from oncesink.pipelines.walk_file import WalkFile
from oncesink.transforms.metrics import Counts
from oncesink.transforms.retry import Backoff, repeat

CLAIM_ROWS = 1000
"""Rows of one transaction: what is live beside this waits for no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backfilled:
    """What this run did: rows inserted, keys whose row was there, rows without a key, where it went on."""

    inserted: int
    already: int
    refused: int
    why: str = ""
    """Why the first of those refused has no key."""
    resumed_after: int | None


def backfill(
    job: Job, source: Source, *, progress: Path, occurrence: bool = False, page_rows: int = PAGE_ROWS
) -> Backfilled:
    """Insert a finished row for each key that has none, going on where an earlier run was stopped.

    Rows that are there stay as they are, open ones too, so running it again changes nothing. With `occurrence` the
    delivery that a row of the table came from is kept, else every later delivery of its key is a duplicate. Raises
    `Misconfigured`, `Unavailable`, `OutcomeUnknown`.
    """
    if job.gate.ledger is None:
        raise Misconfigured("the gate has no ledger: there is nothing to put keys into")
    if isinstance(job.sink, ProvesFirst):
        job.sink.prove()
    records = Records(job, source.table, occurrence=occurrence)
    scope = job.scope
    into = f"{scope.use.value} {scope.name} generation {scope.generation}"
    file = WalkFile(progress, walk=f"backfill of {into} from {source.table.description}")
    after = file.load()
    inserted = keys = 0
    ledger = job.gate.ledger.open(scope)
    try:
        for page in walk(
            f"keys of {source.table.table}", source.table, source.at, after=after, page_rows=page_rows, typed=True
        ):
            claims = list({item.claim.digest: item.claim for item in reversed(records(page.rows))}.values())
            for begin in range(0, len(claims), CLAIM_ROWS):
                inserted += _insert(ledger, claims[begin : begin + CLAIM_ROWS])
            keys += len(claims)
            file.save(page.last_id)
    finally:
        ledger.close()
    file.remove()
    return Backfilled(
        inserted=inserted, already=keys - inserted, refused=records.refused, why=records.why, resumed_after=after
    )


def _insert(ledger: LedgerSession, claims: Sequence[Claim]) -> int:
    """Insert finished rows where there are none; return how many. A lost reply is answered by the same owner."""
    owner = secrets.token_bytes(16)
    rows = repeat(lambda: ledger.claim(claims, owner=owner, lease_seconds=None), Backoff(), Counts())
    return sum(row.owner == owner for row in rows.values()) if rows else len(claims)
