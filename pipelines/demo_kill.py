"""A table sink that takes its process down in the middle of a transaction."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncesink.connectors.contract import Answer, Ledger, LedgerSession, Scope, SinkSession, Write
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.sinks_in_front import SinkInFront, SinkSessionInFront
from oncesink.connectors.sqlite_table import SQLiteTable

EXIT_STATUS = 86
"""Of a process that died as it was told to."""


@dataclass(frozen=True, slots=True)
class DyingTable(SinkInFront):
    """A table that ends the process once `after_rows` were written: rows and claims stand there, not committed."""

    inner: SQLiteTable | MySQLTable
    after_rows: int
    last_words: Path

    @property
    def ledger(self) -> Ledger | None:
        """Return the ledger that the table is written with."""
        return self.inner.ledger

    def open(self, scope: Scope, ledger: LedgerSession | None) -> _DyingSession:
        """Open the table behind."""
        return _DyingSession(self, self.inner.open(scope, ledger))


class _DyingSession(SinkSessionInFront):
    def __init__(self, table: DyingTable, inner: SinkSession) -> None:
        super().__init__(inner)
        self._table = table
        self._rows = 0

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        """Write the rows; die before anybody can commit the last of them."""
        answers = self.inner.write(writes, timeout_seconds=timeout_seconds)
        self._rows += len(writes)
        if self._rows >= self._table.after_rows:
            self._die(len(writes))
        return answers

    def _die(self, open_rows: int) -> None:
        words = {"rows_open": open_rows, "rows_committed": self._rows - open_rows}
        self._table.last_words.write_text(json.dumps(words), encoding="utf-8")
        # No handler runs and nothing is flushed: as a power cut would do it.
        os._exit(EXIT_STATUS)
