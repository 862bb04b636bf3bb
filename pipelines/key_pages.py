"""The keys of a ledger, or of any table, page by page: what filters are filled with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from typing import NamedTuple

from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.table_pages import ledger_rows
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.table_records import Records, Source
from oncesink.pipelines.table_walk import walk
from oncesink.transforms.membership import NumericRecipe


class KeyPage(NamedTuple):
    """The keys up to an id, and the ids that a filter over numbers goes by."""

    digests: list[bytes]
    numbers: list[int]
    last_id: int


class KeyPages:
    """Keys as the job makes them. `refused` counts rows that have none.

    Without a source they are those of the ledger's rows of the gate's scope and generation, inserted within `since`.
    A source's rows go through the gate's key recipe: its columns are the fields of a record. Raises `Misconfigured`.
    """

    def __init__(self, job: Job, source: Source | None, *, since: timedelta | None, page_rows: int) -> None:
        if source is not None and since is not None:
            raise Misconfigured("--since is for the ledger's rows: choose rows of a table by --where")
        own = job.gate.membership
        self._numeric = own if isinstance(own, NumericRecipe) else None
        if source is None and self._numeric is not None:
            raise Misconfigured(f"a ledger's rows have no ids, and {own} wants them: build it from a table")
        self._source = source or _ledger_source(job, since)
        self._records = Records(job, source.table) if source is not None else None
        self._what = f"filters of {job.gate.scope}"
        self._page_rows = page_rows

    @property
    def description(self) -> str:
        """Name what is read, so that two walks can be compared."""
        return self._source.table.description

    @property
    def refused(self) -> int:
        return 0 if self._records is None else self._records.refused

    @property
    def why(self) -> str:
        """Say why the first row that was refused has no key."""
        return "" if self._records is None else self._records.why

    def after(self, last_id: int | None) -> Iterator[KeyPage]:
        """Yield the pages behind an id, or all; show how far it is."""
        table, at = self._source.table, self._source.at
        typed = self._records is not None
        for page in walk(self._what, table, at, after=last_id, page_rows=self._page_rows, typed=typed):
            if self._records is None:
                yield KeyPage(list(chain.from_iterable(page.rows)), [], page.last_id)
                continue
            items = self._records(page.rows)
            numbers = [] if self._numeric is None else [self._numeric.number_of(each.record) for each in items]
            yield KeyPage([each.claim.digest for each in items], numbers, page.last_id)


def _ledger_source(job: Job, since: timedelta | None) -> Source:
    ledger = job.gate.ledger
    if not isinstance(ledger, (MySQLLedger, SQLiteLedger)):
        raise Misconfigured(f"filters are built from a ledger in MySQL or SQLite, or from a table, not from {ledger!r}")
    seconds = None if since is None else since.total_seconds()
    scope, generation = job.gate.scope, job.gate.generation
    return Source(table=ledger_rows(ledger, scope=scope, generation=generation, since_seconds=seconds), at=ledger)
