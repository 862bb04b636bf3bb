"""A ledger in MySQL 8 or MariaDB: one unique row a key, judged by the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import TypeVar

from .contract import Claim, Finish, Row, Scope, Take
from .errors import Misconfigured, Unavailable
from .findings import refuse_errors
from .mysql_check import check_ledger, check_primary, check_scopes
from .mysql_connection import MySQLConnection
from .mysql_ledger_sql import LedgerStatements, checked_claims, row_of
from .mysql_literals import cut
from .mysql_open_rows import count_open, open_rows
from .mysql_rights import create_tables
from .mysql_scopes import MySQLScopes
from .mysql_server import MySQLServer, MySQLTimeouts, MySQLTLS
from .schema import LEDGER_TABLE, checked, mysql_ddl
from .scopes import register
from .secret import Secret, take_password
from .upkeep import OpenCount, OpenPage
from .wanted import check_durations

ATTEMPTS = 3
"""How often a row that vanishes between two statements of a call is tried again."""

RESULTS_A_STATEMENT = 200
"""A CASE is searched from its top for each row, so that its cost grows with the square of its length."""


VANISHING = "rows vanish between two statements again and again: what else deletes them?"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class MySQLLedger:
    """Recipe of a ledger in MySQL: `MySQLLedger("mysql://user@host:3306/database", retention=timedelta(days=7))`.

    A password in the URL is taken out of it; better is `password=Secret.env("NAME")`.

    Delivery: a claim, a finish and a take-over hold once the call returned, as far as the server keeps what it
    committed (`innodb_flush_log_at_trx_commit=1`). With a `MySQLTable` on this ledger, rows and claims are one
    transaction.
    Parallelism: any number of processes; each session has one connection.
    """

    url: str
    retention: timedelta = field(kw_only=True)
    password: Secret | None = field(default=None, kw_only=True)
    table: str = field(default=LEDGER_TABLE, kw_only=True)
    tls: MySQLTLS | None = field(default=None, kw_only=True)
    timeouts: MySQLTimeouts = field(default_factory=MySQLTimeouts, kw_only=True)

    def __post_init__(self) -> None:
        check_durations(self)
        url, password = take_password(self.url, self.password)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "password", password)
        checked(self.table)
        if self.retention <= timedelta(0):
            raise Misconfigured(f"retention={self.retention} keeps nothing")
        _ = self.server

    @property
    def server(self) -> MySQLServer:
        """Where this ledger is."""
        return MySQLServer(url=self.url, password=self.password, tls=self.tls, timeouts=self.timeouts)

    @property
    def shared(self) -> bool:
        return True

    @property
    def ddl(self) -> list[str]:
        """The statements that make its tables where they are absent."""
        return mysql_ddl(self.table)

    def create_tables(self) -> None:
        """Apply `ddl`."""
        create_tables(self.server, self.ddl)

    def open(self, scope: Scope) -> MySQLLedgerSession:
        """Connect, prove what the guarantee needs, register the scope. Raises `Misconfigured` or `Unavailable`."""
        connection = MySQLConnection(self.server)
        try:
            refuse_errors(check_primary(connection))
            refuse_errors([*check_scopes(connection, self.table), *check_ledger(connection, self.table)])
            placed = Scope(
                name=scope.name,
                use=scope.use,
                generation=scope.generation,
                meaning={**scope.meaning, "ledger table": self.table},
            )
            ledger_id = register(MySQLScopes(connection), placed, retention=self.retention)
        except BaseException:
            connection.close()
            raise
        return MySQLLedgerSession(connection, table=self.table, scope=scope, ledger_id=ledger_id)


class MySQLLedgerSession:
    """The ledger's rows over one connection.

    Statements name digests in ascending order, so that batches that meet do not deadlock. A call of several statements
    is one transaction.
    """

    def __init__(self, connection: MySQLConnection, *, table: str, scope: Scope, ledger_id: bytes) -> None:
        self.connection = connection
        self._sql = LedgerStatements(table, scope)
        self._table = table
        self._scope = scope
        self._ledger_id = ledger_id

    def __repr__(self) -> str:
        scope = f"{self._scope.name} generation={self._scope.generation}"
        return f"<{type(self).__name__} {scope} {self.connection!r}>"

    @property
    def ledger_id(self) -> bytes:
        return self._ledger_id

    def claim(self, claims: Sequence[Claim], *, owner: bytes, lease_seconds: float | None) -> Mapping[bytes, Row]:
        wanted = sorted(claims)
        checked_claims(wanted)
        # The common case is that not even one row was there before, and then nothing has to be read.
        if self._insert(wanted, owner, lease_seconds) == len(wanted):
            return {}
        with self.connection.after_write():
            for _ in range(ATTEMPTS):
                rows = self.read([each.digest for each in wanted])
                gone = [each for each in wanted if each.digest not in rows]
                if not gone:
                    return rows
                self._insert(gone, owner, lease_seconds)
            raise Unavailable(VANISHING)

    def read(self, digests: Sequence[bytes]) -> Mapping[bytes, Row]:
        rows: dict[bytes, Row] = {}
        for statement in self._cut(self._sql.select, sorted(digests)):
            rows.update({each[0]: row_of(each) for each in self.connection.query(statement)})
        return rows

    def take(self, takes: Sequence[Take], *, owner: bytes, lease_seconds: float) -> set[bytes]:
        statements: list[str] = []
        for seen, digests in _by_row_seen(takes):
            build = partial(self._sql.take, seen=seen, owner=owner, lease_seconds=lease_seconds)
            statements += self._cut(build, digests)
        statements += [
            self._sql.reclaim(each.claim, owner=owner) for each in sorted(takes, key=attrgetter("digest")) if each.claim
        ]
        # A row that was taken has changed, so where all have, none has to be read. Claims change rows once more.
        plain = all(each.claim is None for each in takes)
        if self._apply(statements) == len(takes) and plain:
            return {each.digest for each in takes}
        with self.connection.after_write():
            rows = self.read([each.digest for each in takes])
        return {digest for digest, row in rows.items() if row.owner == owner and not row.finished}

    def finish(self, finishes: Sequence[Finish], *, owner: bytes) -> set[bytes]:
        wanted = sorted(finishes)
        checked_claims([each.claim for each in wanted])
        if self._finish_open(wanted, owner) == len(wanted):
            return set()
        with self.connection.after_write():
            for _ in range(ATTEMPTS):
                # MySQL counts rows that it changed: a row that was finished before is missing in the count, as a
                # row of another owner is, and one that has gone.
                rows = self.read([each.claim.digest for each in wanted])
                gone = [each for each in wanted if each.claim.digest not in rows]
                if not gone:
                    return {digest for digest, row in rows.items() if row.owner != owner}
                self._apply(self._cut(partial(self._sql.insert_results, owner=owner), gone))
            raise Unavailable(VANISHING)

    def release(self, digests: Sequence[bytes], *, owner: bytes) -> None:
        self._apply(self._cut(partial(self._sql.delete, owner=owner), sorted(digests)))

    def open_rows(
        self, *, older_than_seconds: float, limit: int, after: object | None = None, skip: int = 0
    ) -> OpenPage:
        return open_rows(
            self.connection,
            self._table,
            self._scope,
            older_than_seconds=older_than_seconds,
            limit=limit,
            after=after,
            skip=skip,
        )

    def count_open(self, *, older_than_seconds: float) -> OpenCount:
        return count_open(self.connection, self._table, self._scope, older_than_seconds=older_than_seconds)

    def forget(self, digests: Sequence[bytes]) -> set[bytes]:
        with self.connection.unit():
            there = set(self.read(digests))
            self._apply(self._cut(self._sql.forget, sorted(there)))
        return there

    def transaction(self) -> AbstractContextManager[None]:
        return self.connection.transaction()

    def close(self) -> None:
        self.connection.close()

    def _insert(self, claims: Sequence[Claim], owner: bytes, lease_seconds: float | None) -> int:
        if lease_seconds is None:
            return self._apply(self._cut(partial(self._sql.insert_finished, owner=owner), claims))
        build = partial(self._sql.insert_open, owner=owner, lease_seconds=lease_seconds)
        return self._apply(self._cut(build, claims))

    def _finish_open(self, finishes: Sequence[Finish], owner: bytes) -> int:
        plain = [each.claim.digest for each in finishes if each.result is None]
        statements = self._cut(partial(self._sql.finish, owner=owner), plain)
        told = [each for each in finishes if each.result is not None]
        for start in range(0, len(told), RESULTS_A_STATEMENT):
            part = told[start : start + RESULTS_A_STATEMENT]
            statements += self._cut(partial(self._sql.finish_results, owner=owner), part)
        return self._apply(statements)

    def _cut(self, build: Callable[[Sequence[Item]], str], items: Sequence[Item]) -> list[str]:
        return cut(build, items, limit_bytes=self.connection.max_statement_bytes) if items else []

    def _apply(self, statements: Sequence[str]) -> int:
        if len(statements) == 1:
            return self.connection.execute(statements[0])
        if not statements:
            return 0
        with self.connection.unit():
            return sum([self.connection.execute(each) for each in statements])


def _by_row_seen(takes: Sequence[Take]) -> list[tuple[Row, list[bytes]]]:
    """Group the digests, in order, by owner and lease that were seen; rows that are finished cannot be taken."""
    groups: dict[tuple[bytes, object], tuple[Row, list[bytes]]] = {}
    for each in sorted(takes, key=attrgetter("digest")):
        if each.row is not None and not each.row.finished:
            _, digests = groups.setdefault((each.row.owner, each.row.lease_until), (each.row, []))
            digests.append(each.digest)
    return list(groups.values())
