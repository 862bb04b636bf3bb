"""Rows of an existing table as the job would see them: records, and the keys that its gate makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oncesink.connectors.contract import Ledger
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.mysql_literals import quoted
from oncesink.connectors.table_pages import PagedTable
from oncesink.pipelines.jobs import Job
from oncesink.transforms.gate import Gate
from oncesink.transforms.keys import ByStamp
from oncesink.transforms.prepare import Item, Preparer
from oncesink.transforms.results import Refused


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A table whose columns are the fields of records, and the database that it is in: that of a ledger there."""

    table: PagedTable
    at: Ledger


class Records:
    """Make items of rows. What the gate would refuse is counted, and left out; `why` says it of the first.

    With `occurrence` the columns hold where each record was read, too. Contents are not compared: a row is seldom the
    record that it came from, field by field. Raises `Misconfigured`.
    """

    def __init__(self, job: Job, table: PagedTable, *, occurrence: bool = False) -> None:
        self._prepare = Preparer(_gate(job, occurrence=occurrence), job.scope)
        self._names = tuple(table.columns)
        self.refused = 0
        self.why = ""

    def __call__(self, rows: Sequence[tuple[Any, ...]]) -> list[Item]:
        prepared = self._prepare.batch([dict(zip(self._names, row, strict=True)) for row in rows])
        found = [each for each in prepared if type(each) is Item]
        if len(found) < len(prepared) and not self.why:
            first = next(each for each in prepared if type(each) is Refused)
            self.why = f"{first.reason}: {first.detail}"
        self.refused += len(prepared) - len(found)
        return found


def _gate(job: Job, *, occurrence: bool) -> Gate:
    if not occurrence:
        return replace(job.gate, occurrence=None, payload="none")
    if job.gate.occurrence is None or isinstance(job.gate.occurrence, ByStamp):
        raise Misconfigured(f"a table holds no occurrences for occurrence={job.gate.occurrence!r}: leave them out")
    return replace(job.gate, payload="none")


def source_of(table: str, columns: Sequence[str], *, id_column: str, where: str | None, at: Ledger | None) -> Source:
    """Return the source that options name; each column is `name`, or `name=SQL expression`. Raises `Misconfigured`."""
    if not columns:
        raise Misconfigured("name the columns that hold the key: --column order_id, or --column 'order_id=SQL'")
    if at is None:
        raise Misconfigured("the gate has no ledger, and so no database to read from")
    chosen = dict(_column_of(each) for each in columns)
    return Source(table=PagedTable(table=table, id_column=id_column, where=where, columns=chosen), at=at)


def _column_of(option: str) -> tuple[str, str]:
    name, equals, expression = option.partition("=")
    if not name or (equals and not expression):
        raise Misconfigured(f"a column is a name, or name=SQL expression, not {option!r}")
    return name, expression or quoted(name)
