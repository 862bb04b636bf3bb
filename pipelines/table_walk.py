"""Walk over the rows of a table, page by page, through passing troubles of its server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from oncesink.connectors.contract import Ledger
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.table_pages import Page, PagedTable, connect
from oncesink.pipelines.progress import IdBar
from oncesink.transforms.metrics import Counts
from oncesink.transforms.retry import Backoff, repeat

PAGE_ROWS = 10_000


def walk(
    what: str, table: PagedTable, ledger: Ledger, *, after: int | None, page_rows: int, typed: bool = False
) -> Iterator[Page]:
    """Yield the pages behind an id, or all, up to the id that is the highest now; show how far it is.

    The table is in the database of a ledger, its own or any. Raises `Unavailable` after some attempts, `Misconfigured`.
    """
    if page_rows < 1:
        raise Misconfigured(f"a page has at least one row, not {page_rows}")
    with closing(connect(ledger, typed=typed)) as connection:
        bounds = repeat(lambda: table.bounds(connection), Backoff(), Counts())
        if bounds is None:
            return
        lowest, highest = bounds
        last = lowest - 1 if after is None else after
        with IdBar(what, lowest=last + 1, highest=highest) as bar:
            while last < highest:
                page = repeat(partial(table.page, connection, after=last, rows=page_rows), Backoff(), Counts())
                if page is None:
                    return
                yield page
                last = page.last_id
                bar.show(last, page.looked_at)
