"""A SQLite connection that says what a failure means for the call that met it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from .errors import Misconfigured, OnceSinkError, OutcomeUnknown, Rejected, Unavailable

log = logging.getLogger(__name__)

NOW = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
"""Microseconds since 1970, to the millisecond, by the clock of the machine; it stands still within a statement."""

OLDEST = (3, 24, 0)
"""The first version with upserts."""

_PERSONS_WORK = (1, 3, 8, 11, 14, 23, 26)
"""Codes that last until a person acts: unknown name, permission, read-only, corrupt, cannot open, no database."""


class SQLiteConnection:
    """One connection of one thread; others, of any process of this machine, are waited for up to `busy`."""

    def __init__(self, path: str, *, busy: timedelta) -> None:
        self.path = path
        self.in_transaction = False
        if sqlite3.sqlite_version_info < OLDEST:
            raise Misconfigured(f"SQLite {sqlite3.sqlite_version} is too old, 3.24 is wanted: take a newer Python")
        try:
            # Engines may call one session from one thread after the other.
            self._raw = sqlite3.connect(
                path, timeout=busy.total_seconds(), isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise Misconfigured(f"cannot open {path!r}: {error}") from error
        try:
            self._set_up()
        except BaseException:
            self._raw.close()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {'transaction' if self.in_transaction else 'idle'}>"

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement that writes; return how many rows it changed."""
        with self._mapped():
            return self._raw.execute(sql, parameters).rowcount

    def execute_each(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """Run a statement once for each row of parameters; return how many rows that changed."""
        with self._mapped():
            return self._raw.executemany(sql, rows).rowcount

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement that reads."""
        with self._mapped():
            return self._raw.execute(sql, parameters).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the write lock, commit at the end, roll back on any error."""
        if self.in_transaction:
            raise Misconfigured("a transaction is open already; they do not nest")
        self.execute("BEGIN IMMEDIATE")
        self.in_transaction = True
        try:
            yield
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self.in_transaction = False

    @contextmanager
    def unit(self) -> Iterator[None]:
        """Join the open transaction, or run one."""
        if self.in_transaction:
            yield
        else:
            with self.transaction():
                yield

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        self._raw.close()

    def _set_up(self) -> None:
        if self.query("PRAGMA journal_mode")[0][0] != "wal" and self.query("PRAGMA journal_mode=WAL")[0][0] != "wal":
            raise Misconfigured(f"{self.path!r} cannot be shared (no write-ahead log): choose a file on a local disk")
        # A commit that was acknowledged must outlive a power cut.
        self.execute("PRAGMA synchronous=FULL")
        self.execute("PRAGMA foreign_keys=ON")

    def _commit(self) -> None:
        if not self._raw.in_transaction:
            raise Unavailable("the transaction was rolled back by SQLite, nothing of it is written")
        try:
            self._raw.execute("COMMIT")
        except sqlite3.Error as error:
            if self._raw.in_transaction:
                raise Unavailable(f"SQLite did not commit: {error}") from error
            raise OutcomeUnknown(f"the commit failed: {error}") from error

    def _roll_back(self) -> None:
        """Undo without raising, since another error is on its way. What it cannot undo ends with the connection."""
        try:
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
        except sqlite3.Error:
            log.warning("rollback failed, the connection is given up", exc_info=True)
            self._raw.close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise Rejected("refused", f"SQLite: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self._judged(error) from error
        except UnicodeEncodeError as error:
            raise Rejected("not_unicode", f"a text has lone surrogates: {error.reason}") from error
        except OverflowError as error:
            raise Rejected("wrong_type", f"SQLite holds integers of 64 bits: {error}") from error

    def _judged(self, error: sqlite3.DatabaseError) -> OnceSinkError:
        # Python 3.10 tells no code; there a passing trouble is an OperationalError, and so are some lasting ones.
        code = getattr(error, "sqlite_errorcode", None)
        lasting = not isinstance(error, sqlite3.OperationalError) if code is None else code & 0xFF in _PERSONS_WORK
        return Misconfigured(f"{self.path}: {error}") if lasting else Unavailable(f"SQLite: {error}")
