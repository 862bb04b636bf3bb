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
from oncesink.transforms.cold_start import meaning_of, stored_recipe
from oncesink.transforms.membership import NumericRecipe
from oncesink.transforms.membership.rebuilding import Rebuilding
from oncesink.transforms.membership.stored import Manifest
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
    if source is not None and since is not None:
        raise Misconfigured("--since is for the ledger's rows: choose rows of a table by --where")
    meaning = meaning_of(gate, shards=shards)
    recipe = stored_recipe(gate, meaning.shards)
    if source is None and isinstance(recipe, NumericRecipe):
        raise Misconfigured(f"a ledger's rows have no ids, and {recipe.description} wants them: build it from a table")
    run = Rebuilding(FileFolder(url), recipe, meaning=meaning, source=table.description)
    resumed_after = run.last_id if run.resumed else None
    keys = _Keys(job) if source is not None else None
    due = time.monotonic() + checkpoint.total_seconds()
    for page in walk(
        f"filters of {gate.scope}", table, gate.ledger, after=resumed_after, page_rows=page_rows, typed=keys is not None
    ):
        if keys is None:
            run.add(_digests(page.rows), last_id=page.last_id)
        else:
            run.add(*keys(table, page.rows), last_id=page.last_id)
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
    """The digests that the job would make of these rows, and their ids; rows without a key are counted."""

    def __init__(self, job: Job) -> None:
        self._prepare = Preparer(job.keys_only, job.scope)
        self._membership = job.gate.membership
        self.refused = 0

    def __call__(self, table: PagedTable, rows: Sequence[tuple[Any, ...]]) -> tuple[list[bytes], list[int]]:
        names = tuple(table.columns)
        prepared = self._prepare.batch([dict(zip(names, row, strict=True)) for row in rows])
        found = [each for each in prepared if type(each) is Item]
        self.refused += len(prepared) - len(found)
        own = self._membership
        ids = [own.number_of(each.record) for each in found] if isinstance(own, NumericRecipe) else []
        return [each.claim.digest for each in found], ids
