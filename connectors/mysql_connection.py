"""A MySQL connection that says what a failure means for the call that met it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import Misconfigured, OnceSinkError, OutcomeUnknown, Rejected, Unavailable
from .mysql_errors import ROLLED_BACK_AT_COMMIT, Fault, code_of, fault_of, text_of
from .mysql_server import MySQLServer

if TYPE_CHECKING:
    import pymysql

log = logging.getLogger(__name__)

PACKET_MARGIN_BYTES = 1024


class Duplicate(Rejected):
    """A unique key holds a value of the statement already; the detail names the key."""


class MySQLConnection:
    """One connection of one thread, made again by the next call when it was lost or has been silent for long.

    Outside a transaction each statement commits by itself. A lost reply is `OutcomeUnknown` where the statement wrote
    and may have been committed; a read, and any statement of a transaction that was not yet to be committed, is
    `Unavailable`.

    What `query` returns is text and bytes; `typed`: numbers and times, too.
    """

    def __init__(
        self, server: MySQLServer, *, typed: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.server = server
        self._typed = typed
        self.max_statement_bytes = 0
        self.in_transaction = False
        self._doomed = False
        self._clock = clock
        self._raw: pymysql.Connection[Any] | None = None
        self._used = 0.0
        self._deadline: float | None = None
        self._ready()

    def __repr__(self) -> str:
        state = "transaction" if self.in_transaction else "idle" if self._raw is not None else "closed"
        return f"<{type(self).__name__} {self.server.url} {state}>"

    def execute(self, sql: str | bytes) -> int:
        """Run a statement that writes; return how many rows it changed."""
        raw = self._ready()
        with self._mapped(writes=True):
            return int(raw.query(sql))

    def query(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        """Run a statement that reads."""
        return self._read(sql)[0]

    def query_exactly(self, sql: bytes) -> tuple[tuple[Any, ...], ...] | None:
        """Run a statement that reads; return None where the server changed a value of it, which it warns of.

        An insert of that value is an error.
        """
        rows, warnings = self._read(sql)
        return None if warnings else rows

    def _read(self, sql: str | bytes) -> tuple[tuple[tuple[Any, ...], ...], int]:
        raw = self._ready()
        with self._mapped(writes=False), raw.cursor() as cursor:
            cursor.execute(sql)
            return tuple(cursor.fetchall()), cursor.warning_count

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end, roll back on any error. Raises `OutcomeUnknown` when the commit's reply was lost."""
        if self.in_transaction:
            raise Misconfigured("a transaction is open already; they do not nest")
        raw = self._ready()
        with self._mapped(writes=False):
            raw.begin()
        self.in_transaction, self._doomed = True, False
        try:
            yield
            self._commit(self._ready())
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

    @contextmanager
    def after_write(self) -> Iterator[None]:
        """Say `OutcomeUnknown` where something fails after a statement of the same call was committed."""
        try:
            yield
        except Unavailable as error:
            if self.in_transaction:
                raise
            raise OutcomeUnknown(f"a part was written, then: {error}") from error

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Bound all statements of a block together."""
        self._deadline = self._clock() + seconds
        try:
            yield
        finally:
            self._deadline = None

    def close(self) -> None:
        """End the connection. Safe to repeat."""
        raw, self._raw = self._raw, None
        if raw is not None and raw.open:
            raw.close()

    def _ready(self) -> pymysql.Connection[Any]:
        raw = self._raw
        if self.in_transaction:
            if raw is None or not raw.open or self._doomed:
                raise Unavailable("the transaction was lost, nothing of it is written")
        elif raw is None or not raw.open or self._clock() - self._used > self._idle_seconds:
            self.close()
            raw = self._connect()
        self._used = self._clock()
        self._set_timeout(raw)
        return raw

    @property
    def _idle_seconds(self) -> float:
        # Half of what the server allows: a connection that it has just ended would swallow a statement.
        return self.server.timeouts.idle.total_seconds() / 2

    def _set_timeout(self, raw: pymysql.Connection[Any]) -> None:
        seconds = self.server.timeouts.statement.total_seconds()
        if self._deadline is not None:
            left = self._deadline - self._clock()
            if left <= 0:
                raise Unavailable("the call's time was over before this statement was sent")
            seconds = min(seconds, left)
        # The driver takes it as an argument at connect only, but reads it anew for each packet.
        raw._read_timeout = seconds  # type: ignore[attr-defined]  # noqa: SLF001

    def _connect(self) -> pymysql.Connection[Any]:
        driver = _driver()
        try:
            # Without converters: what the library asks for is bytes, text, and numbers that it converts itself.
            converters = driver.converters.decoders if self._typed else {}
            raw: pymysql.Connection[Any] = driver.connect(conv=converters, **self.server.options())
            with raw.cursor() as cursor:
                cursor.execute("SELECT @@max_allowed_packet, @@version")
                packet_bytes, version = cursor.fetchall()[0]
            self.max_statement_bytes = int(packet_bytes) - PACKET_MARGIN_BYTES
            for statement in self.server.session_settings(mariadb="MariaDB" in version):
                raw.query(statement)
        except driver.MySQLError as error:
            raise self._refused(error) from error
        except (OSError, RuntimeError) as error:
            # Files of TLS that cannot be read, or an authentication for which a package is missing.
            raise Misconfigured(f"cannot connect to {self.server.url}: {error}") from error
        self._raw = raw
        return raw

    def _refused(self, error: Exception) -> OnceSinkError:
        message = f"cannot connect to {self.server.url}: {text_of(error)}"
        return Misconfigured(message) if fault_of(error) is Fault.MISCONFIGURED else Unavailable(message)

    @contextmanager
    def _mapped(self, *, writes: bool) -> Iterator[None]:
        try:
            yield
        except _driver().MySQLError as error:
            raise self._judged(error, writes=writes) from error

    def _judged(self, error: Exception, *, writes: bool) -> OnceSinkError:
        fault, text = fault_of(error), text_of(error)
        if fault is Fault.LOST:
            self._doomed = True
            self.close()
            return OutcomeUnknown(text) if writes and not self.in_transaction else Unavailable(text)
        if fault is Fault.BUSY:
            # A lock wait that timed out ends the statement only, a deadlock the transaction. In both cases nothing more
            # is sent until the transaction's block has ended and rolled back.
            self._doomed = True
            return Unavailable(text)
        if fault is Fault.MISCONFIGURED:
            return Misconfigured(text)
        return Duplicate("refused", text) if fault is Fault.DUPLICATE else Rejected("refused", text)

    def _commit(self, raw: pymysql.Connection[Any]) -> None:
        try:
            raw.commit()
        except _driver().MySQLError as error:
            if code_of(error) in ROLLED_BACK_AT_COMMIT:
                raise Unavailable(text_of(error)) from error
            self.close()
            raise OutcomeUnknown(f"the commit's reply is missing: {text_of(error)}") from error

    def _roll_back(self) -> None:
        """Undo without raising, since another error is on its way.

        What it cannot undo ends with the connection.
        """
        if self._raw is None or not self._raw.open:
            return
        try:
            self._raw.rollback()
        except _driver().MySQLError:
            log.warning("rollback failed, the connection is given up", exc_info=True)
            self.close()


def _driver() -> Any:
    try:
        import pymysql  # noqa: PLC0415
    except ImportError as error:
        raise Misconfigured("MySQL needs its driver: pip install 'oncesink[mysql]'") from error
    return pymysql
