"""`oncesink rebuild`: make the filters of a gate from the rows of its ledger, or of any table of that database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.file_folder import FileFolder
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.table_pages import ledger_rows
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.table_records import Records, Source
from oncesink.pipelines.table_walk import PAGE_ROWS, walk
from oncesink.transforms.cold_start import meaning_of, stored_recipe
from oncesink.transforms.membership import MembershipRecipe, NumericRecipe
from oncesink.transforms.membership.rebuilding import Rebuilding
from oncesink.transforms.membership.stored import Manifest
from oncesink.transforms.prepare import Item

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
    source: Source | None = None,
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
    gate = job.gate
    if source is not None and since is not None:
        raise Misconfigured("--since is for the ledger's rows: choose rows of a table by --where")
    meaning = meaning_of(gate, shards=shards)
    recipe = stored_recipe(gate, meaning.shards)
    if source is None and isinstance(recipe, NumericRecipe):
        raise Misconfigured(f"a ledger's rows have no ids, and {recipe.description} wants them: build it from a table")
    chosen = source or _ledger_rows(job, since)
    run = Rebuilding(FileFolder(url), recipe, meaning=meaning, source=chosen.table.description)
    resumed_after = run.last_id if run.resumed else None
    records = Records(job, chosen.table) if source is not None else None
    due = time.monotonic() + checkpoint.total_seconds()
    for page in walk(
        f"filters of {gate.scope}",
        chosen.table,
        chosen.at,
        after=resumed_after,
        page_rows=page_rows,
        typed=records is not None,
    ):
        if records is None:
            run.add(list(chain.from_iterable(page.rows)), last_id=page.last_id)
        else:
            run.add(*_keys(records(page.rows), recipe), last_id=page.last_id)
        if time.monotonic() >= due:
            run.checkpoint()
            due = time.monotonic() + checkpoint.total_seconds()
    refused = records.refused if records is not None else 0
    return Rebuilt(manifest=run.finish(), resumed_after=resumed_after, refused=refused)


def _keys(items: Sequence[Item], recipe: MembershipRecipe) -> tuple[list[bytes], list[int]]:
    ids = [recipe.number_of(each.record) for each in items] if isinstance(recipe, NumericRecipe) else []
    return [each.claim.digest for each in items], ids


def _ledger_rows(job: Job, since: timedelta | None) -> Source:
    ledger = job.gate.ledger
    if not isinstance(ledger, (MySQLLedger, SQLiteLedger)):
        raise Misconfigured(
            f"filters are built from a ledger in MySQL or SQLite, or from a table there, not {ledger!r}"
        )
    seconds = None if since is None else since.total_seconds()
    scope, generation = job.gate.scope, job.gate.generation
    return Source(table=ledger_rows(ledger, scope=scope, generation=generation, since_seconds=seconds), at=ledger)
