"""A table sink that takes its process down in the middle of a transaction."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from oncesink.connectors.contract import Answer, Ledger, LedgerSession, Scope, SinkKind, SinkSession, Write
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.sqlite_table import SQLiteTable

EXIT_STATUS = 86
"""Of a process that died as it was told to."""


@dataclass(frozen=True, slots=True)
class DyingTable:
    """A table that ends the process once `after_rows` were written: rows and claims stand there, not committed."""

    inner: SQLiteTable | MySQLTable
    after_rows: int
    last_words: Path

    @property
    def kind(self) -> SinkKind:
        return self.inner.kind

    @property
    def ledger(self) -> Ledger | None:
        """Return the ledger that the table is written with."""
        return self.inner.ledger

    @property
    def target(self) -> str:
        return self.inner.target

    @property
    def timeout(self) -> timedelta:
        return self.inner.timeout

    @property
    def atomic(self) -> bool:
        return self.inner.atomic

    @property
    def can_probe(self) -> bool:
        return self.inner.can_probe

    @property
    def remembers(self) -> timedelta | None:
        return self.inner.remembers

    @property
    def tells_occurrence(self) -> bool:
        return self.inner.tells_occurrence

    def open(self, scope: Scope, ledger: LedgerSession | None) -> _DyingSession:
        """Open the table behind."""
        return _DyingSession(self, self.inner.open(scope, ledger))


class _DyingSession:
    store_id: bytes | None = None

    def __init__(self, table: DyingTable, inner: SinkSession) -> None:
        self._table = table
        self._inner = inner
        self._rows = 0

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        """Write the rows; die before anybody can commit the last of them."""
        answers = self._inner.write(writes, timeout_seconds=timeout_seconds)
        self._rows += len(writes)
        if self._rows >= self._table.after_rows:
            self._die(len(writes))
        return answers

    def _die(self, open_rows: int) -> None:
        words = {"rows_open": open_rows, "rows_committed": self._rows - open_rows}
        self._table.last_words.write_text(json.dumps(words), encoding="utf-8")
        # No handler runs and nothing is flushed: as a power cut would do it.
        os._exit(EXIT_STATUS)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        return self._inner.probe(writes, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        self._inner.close()
