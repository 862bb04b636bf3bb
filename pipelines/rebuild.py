"""`oncesink rebuild`: make the filters of a gate from the rows of its ledger, or of any table."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.file_folder import FileFolder
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.key_pages import KeyPages
from oncesink.pipelines.table_records import Source
from oncesink.pipelines.table_walk import PAGE_ROWS
from oncesink.pipelines.walk_file import WalkFile
from oncesink.transforms.cold_start import meaning_of, stored_recipe
from oncesink.transforms.membership import Keys, RedisBloom
from oncesink.transforms.membership.rebuilding import Rebuilding
from oncesink.transforms.membership.stored import Manifest
from oncesink.transforms.metrics import Counts
from oncesink.transforms.retry import Backoff, repeat

CHECKPOINT = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """What a rebuild did; `resumed_after` is the id at which an earlier attempt had stopped."""

    manifest: Manifest
    resumed_after: int | None
    refused: int
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refilled:
    """What a refill of a shared filter did; `keys` are those of this run, `made` tells whether it was lost before."""

    keys: int
    resumed_after: int | None
    refused: int
    made: bool
    why: str = ""


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

    `KeyPages` says what goes in. Raises `Misconfigured`, `Unavailable`, `FilterTooLarge`.
    """
    meaning = meaning_of(job.gate, shards=shards)
    recipe = stored_recipe(job.gate, meaning.shards)
    pages = KeyPages(job, source, since=since, page_rows=page_rows)
    folder = FileFolder(url)
    run = Rebuilding(folder, recipe, meaning=meaning, source=pages.description)
    folder.prove()
    resumed_after = run.last_id if run.resumed else None
    due = time.monotonic() + checkpoint.total_seconds()
    for page in pages.after(resumed_after):
        run.add(page.digests, page.numbers, last_id=page.last_id)
        if time.monotonic() >= due:
            run.checkpoint()
            due = time.monotonic() + checkpoint.total_seconds()
    return Rebuilt(manifest=run.finish(), resumed_after=resumed_after, refused=pages.refused, why=pages.why)


def refill(
    job: Job,
    *,
    progress: Path,
    source: Source | None = None,
    since: timedelta | None = None,
    page_rows: int = PAGE_ROWS,
) -> Refilled:
    """Fill the filter that jobs share in Redis, while they go on; make it if it is lost.

    Keys that are not in yet cost a claim that finds its row, and nothing else. Progress is stored in a file, so that a
    killed run goes on; it begins anew where the filter was lost. Raises `Misconfigured`, `Unavailable`.
    """
    shared = job.gate.membership
    if not isinstance(shared, RedisBloom):
        raise Misconfigured(f"{shared!r} is not in Redis: say where its filters go, --to")
    pages = KeyPages(job, source, since=since, page_rows=page_rows)
    scope = job.scope
    file = WalkFile(progress, walk=f"refill of {shared.description} for {scope.name} from {pages.description}")
    made = shared.create_filter()
    resumed_after = None if made else file.load()
    keys = 0
    live = shared.open(Counts())
    try:
        for page in pages.after(resumed_after):
            repeat(partial(live.put, Keys(page.digests)), Backoff(), Counts())
            keys += len(page.digests)
            file.save(page.last_id)
    finally:
        live.close()
    file.remove()
    return Refilled(keys=keys, resumed_after=resumed_after, refused=pages.refused, made=made, why=pages.why)
