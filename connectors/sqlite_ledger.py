"""A ledger in a SQLite file: nothing to install, shared by the processes of one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .contract import Claim, Finish, Row, Scope, Take
from .errors import Misconfigured
from .schema import LEDGER_TABLE, checked, sqlite_ddl
from .scopes import register
from .sqlite_connection import NOW, SQLiteConnection
from .sqlite_open_rows import count_open, open_rows
from .sqlite_scopes import SQLiteScopes
from .upkeep import OpenCount, OpenPage
from .wanted import check_durations

ATTEMPTS = 3
KEYS_A_STATEMENT = 500

SCHEME = "sqlite:///"


@dataclass(frozen=True, slots=True)
class SQLiteLedger:
    """Recipe of a ledger in a file: `SQLiteLedger("once.db", retention=timedelta(days=7))`.

    `where` is a path or a URL: `sqlite:///relative/path`, `sqlite:////absolute/path`. Times are of the machine's clock,
    to the millisecond. `busy` is how long a call waits for another process that writes.

    Delivery: as `MySQLLedger`, with a commit that outlives a power cut. With a `SQLiteTable` on this ledger, rows and
    claims are one transaction.
    Parallelism: processes of one machine, on a local disk; one writes at a time.
    """

    where: str
    retention: timedelta = field(kw_only=True)
    table: str = field(default=LEDGER_TABLE, kw_only=True)
    busy: timedelta = field(default=timedelta(seconds=10), kw_only=True)

    def __post_init__(self) -> None:
        check_durations(self)
        checked(self.table)
        if self.retention <= timedelta(0):
            raise Misconfigured(f"retention={self.retention} keeps nothing")
        if self.path in ("", ":memory:") or "://" in self.path:
            # The text is not repeated: who takes it for a server's URL may put a password into it.
            raise Misconfigured("a SQLite ledger is a file, sqlite:///path, and no host; or take a MemoryLedger")

    @property
    def path(self) -> str:
        """The file."""
        return self.where.removeprefix(SCHEME)

    @property
    def shared(self) -> bool:
        return False

    @property
    def ddl(self) -> list[str]:
        """The statements that `open` runs where a table is absent."""
        return sqlite_ddl(self.table)

    def open(self, scope: Scope) -> SQLiteLedgerSession:
        """Open the file, make its tables, register the scope. Raises `Misconfigured` or `Unavailable`."""
        connection = SQLiteConnection(self.path, busy=self.busy)
        try:
            with connection.transaction():
                for statement in self.ddl:
                    connection.execute(statement)
            _check_unique(connection, self.table)
            ledger_id = register(SQLiteScopes(connection), _placed(scope, self.table), retention=self.retention)
        except BaseException:
            connection.close()
            raise
        return SQLiteLedgerSession(connection, table=self.table, scope=scope, ledger_id=ledger_id)


class SQLiteLedgerSession:
    """The ledger's rows over one connection."""

    def __init__(self, connection: SQLiteConnection, *, table: str, scope: Scope, ledger_id: bytes) -> None:
        self.connection = connection
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
        # The write lock is held from before the insert until after the read: no row can go in between.
        with self.connection.unit():
            finishes = [Finish(claim) for claim in claims]
            if self._insert(finishes, owner=owner, lease_seconds=lease_seconds) == len(claims):
                return {}
            return self.read([claim.digest for claim in claims])

    def read(self, digests: Sequence[bytes]) -> Mapping[bytes, Row]:
        rows: dict[bytes, Row] = {}
        for start in range(0, len(digests), KEYS_A_STATEMENT):
            part = digests[start : start + KEYS_A_STATEMENT]
            marks = ",".join("?" * len(part))
            found = self.connection.query(
                "SELECT digest, state, occurrence, owner, payload_hash, result, lease_until, "
                f"lease_until - {NOW}, {NOW} - COALESCE(finished_at, created_at) "
                f"FROM {self._table} WHERE digest IN ({marks})",
                part,
            )
            rows.update({each[0]: _row(each) for each in found})
        return rows

    def take(self, takes: Sequence[Take], *, owner: bytes, lease_seconds: float) -> set[bytes]:
        seen = [
            (owner, each.digest, each.row.owner, each.row.lease_until)
            for each in takes
            if each.row is not None and not each.row.finished
        ]
        stored = [(*c[1:], c.digest, owner) for c in [each.claim for each in takes] if c]
        with self.connection.unit():
            self.connection.execute_each(
                f"UPDATE {self._table} SET owner=?, lease_until={NOW} + {_microseconds(lease_seconds)} "
                "WHERE digest=? AND state=0 AND owner=? AND lease_until=?",
                seen,
            )
            self.connection.execute_each(
                f"UPDATE {self._table} SET occurrence=?, payload_hash=?, payload=? "
                "WHERE digest=? AND state=0 AND owner=?",
                stored,
            )
            rows = self.read([each.digest for each in takes])
        return {digest for digest, row in rows.items() if row.owner == owner and not row.finished}

    def finish(self, finishes: Sequence[Finish], *, owner: bytes) -> set[bytes]:
        with self.connection.unit():
            changed = self.connection.execute_each(
                f"UPDATE {self._table} SET state=1, lease_until=NULL, finished_at={NOW}, result=? "
                "WHERE digest=? AND owner=? AND state=0",
                [(each.result, each.claim.digest, owner) for each in finishes],
            )
            if changed == len(finishes):
                return set()
            self._insert(finishes, owner=owner, lease_seconds=None)
            rows = self.read([each.claim.digest for each in finishes])
        return {digest for digest, row in rows.items() if row.owner != owner}

    def release(self, digests: Sequence[bytes], *, owner: bytes) -> None:
        with self.connection.unit():
            self.connection.execute_each(
                f"DELETE FROM {self._table} WHERE digest=? AND owner=? AND state=0",
                [(digest, owner) for digest in digests],
            )

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
            self.connection.execute_each(f"DELETE FROM {self._table} WHERE digest=?", [(each,) for each in there])
        return there

    def transaction(self) -> AbstractContextManager[None]:
        return self.connection.transaction()

    def close(self) -> None:
        self.connection.close()

    def _insert(self, finishes: Sequence[Finish], *, owner: bytes, lease_seconds: float | None) -> int:
        if lease_seconds is None:
            state, lease, finished = "1", "NULL", NOW
        else:
            state, lease, finished = "0", f"{NOW} + {_microseconds(lease_seconds)}", "NULL"
        fixed = (owner, self._scope.name, self._scope.generation)
        return self.connection.execute_each(
            f"INSERT INTO {self._table} (digest, occurrence, payload_hash, payload, result, owner, scope, generation, "
            f"state, lease_until, created_at, finished_at) "
            f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, {state}, {lease}, {NOW}, {finished}) ON CONFLICT (digest) DO NOTHING",
            [(*each.claim, each.result, *fixed) for each in finishes],
        )


def _placed(scope: Scope, table: str) -> Scope:
    meaning = {**scope.meaning, "ledger table": table}
    return Scope(name=scope.name, use=scope.use, generation=scope.generation, meaning=meaning)


def _check_unique(connection: SQLiteConnection, table: str) -> None:
    keys = [
        [column[2] for column in connection.query(f"PRAGMA index_info({index[1]})")]
        for index in connection.query(f"PRAGMA index_list({table})")
        if index[2]
    ]
    if ["digest"] not in keys:
        raise Misconfigured(f"{connection.path}: table {table} is no ledger, it has no unique digest: choose table=")


def _row(values: tuple[Any, ...]) -> Row:
    digest, state, occurrence, owner, payload_hash, result, lease_until, left, age = values
    left_seconds = 0.0 if left is None else left / 1e6
    return Row(digest, state == 1, occurrence, owner, payload_hash, result, lease_until, left_seconds, age / 1e6)


def _microseconds(seconds: float) -> int:
    return int(timedelta(seconds=seconds) / timedelta(microseconds=1))
