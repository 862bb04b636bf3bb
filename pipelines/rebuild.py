"""`oncesink rebuild`: make the filters of a gate from the rows of its ledger, or of any table of that database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any

from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.file_folder import FileFolder
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.table_pages import PagedTable, ledger_rows
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.table_walk import PAGE_ROWS, walk
from oncesink.transforms.membership import MembershipRecipe, NumericRecipe
from oncesink.transforms.membership.rebuilding import Rebuilding
from oncesink.transforms.membership.stored import Manifest, Meaning
from oncesink.transforms.prepare import Item, Preparer

CHECKPOINT = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """What a rebuild did; `resumed_after` is the id at which an earlier attempt had stopped."""

    manifest: Manifest
    resumed_after: int | None
    refused: int


def rebuild(
    job: Job,
    url: str,
    *,
    source: PagedTable | None = None,
    since: timedelta | None = None,
    shards: int | None = None,
    page_rows: int = PAGE_ROWS,
    checkpoint: timedelta = CHECKPOINT,
) -> Rebuilt:
    """Fill filters and store them at a URL, going on where an earlier attempt was killed.

    Without a source the ledger's rows of the gate's scope and generation go in, those inserted within `since`. A
    source's rows go through the gate's key recipe: its columns are the fields of a record. Raises `Misconfigured`,
    `Unavailable`, `FilterTooLarge`.
    """
    gate, table = job.gate, source or _ledger_rows(job, since)
    if gate.membership is None:
        raise Misconfigured("the gate has no membership=: there is no filter to build")
    if isinstance(gate.membership, NumericRecipe) or not isinstance(gate.membership, MembershipRecipe):
        raise Misconfigured(f"filters are built from keys, and not {gate.membership.description}")
    if source is not None and since is not None:
        raise Misconfigured("--since is for the ledger's rows: choose rows of a table by --where")
    meaning = Meaning(
        scope=gate.scope,
        generation=gate.generation,
        shards=gate.shards if shards is None else shards,
        filter=gate.membership.description,
    )
    run = Rebuilding(FileFolder(url), gate.membership, meaning=meaning, source=table.description)
    resumed_after = run.last_id if run.resumed else None
    keys = _Keys(job) if source is not None else None
    due = time.monotonic() + checkpoint.total_seconds()
    for page in walk(
        f"filters of {gate.scope}", table, gate.ledger, after=resumed_after, page_rows=page_rows, typed=keys is not None
    ):
        run.add(_digests(page.rows) if keys is None else keys(table, page.rows), last_id=page.last_id)
        if time.monotonic() >= due:
            run.checkpoint()
            due = time.monotonic() + checkpoint.total_seconds()
    return Rebuilt(manifest=run.finish(), resumed_after=resumed_after, refused=keys.refused if keys is not None else 0)


def _ledger_rows(job: Job, since: timedelta | None) -> PagedTable:
    ledger = job.gate.ledger
    if not isinstance(ledger, (MySQLLedger, SQLiteLedger)):
        raise Misconfigured(
            f"filters are built from a ledger in MySQL or SQLite, or from a table there, not {ledger!r}"
        )
    seconds = None if since is None else since.total_seconds()
    return ledger_rows(ledger, scope=job.gate.scope, generation=job.gate.generation, since_seconds=seconds)


def _digests(rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    return list(chain.from_iterable(rows))


class _Keys:
    """The digests that the job would make of these rows; rows without a key are counted."""

    def __init__(self, job: Job) -> None:
        self._prepare = Preparer(job.keys_only, job.scope)
        self.refused = 0

    def __call__(self, table: PagedTable, rows: Sequence[tuple[Any, ...]]) -> list[bytes]:
        names = tuple(table.columns)
        prepared = self._prepare.batch([dict(zip(names, row, strict=True)) for row in rows])
        found = [each.claim.digest for each in prepared if type(each) is Item]
        self.refused += len(prepared) - len(found)
        return found
