"""Versioned rows in MySQL: what is absent is inserted, what is older replaced, in a transaction that holds both.

    look      each key's version, without a lock: it only ever grows, so what is stale now stays stale
    INSERT    rows that were not there; another writer's row in between is an error of the unique key
    upsert    rows that were older, by one conditional statement; its count of changed rows tells whether all of them
              still were

The upsert alone would keep the newest, whoever comes in between; the rest serves to tell exactly who was stale.
`VALUES(column)` is the one form that both MySQL 8 and MariaDB take: row aliases are MySQL's only, and a derived table
in its place would give all values of a column one type and round some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from .contract import ALREADY, STALE, WRITTEN, Answer, Outcome, Write
from .errors import Misconfigured, Rejected, Unavailable
from .mysql_connection import Duplicate, MySQLConnection
from .mysql_insert import insert
from .mysql_key import KeyText, TableKey
from .mysql_literals import quoted
from .mysql_probe import probe_each
from .table_values import DEFAULT, TableValues, Values
from .versioned import Kind, Version, Versioned, buried, newest, version_of

UPDATED = 2
"""How many rows MySQL counts for one that an upsert changed; 1 for one that it inserted, 0 for one that it left."""

Found = dict[int, tuple[Version, bytes | None]]
"""Version and occurrence in the table, by the number of the record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Batch:
    """What is to be written. `best` are the numbers of the newest records of each key."""

    values: Values
    keys: list[KeyText]
    versions: list[Version]
    best: dict[KeyText, int]

    def rows(self, numbers: Sequence[int]) -> Values:
        # In the order of their keys, so that batches that meet do not deadlock.
        chosen = sorted(numbers, key=lambda number: self.keys[number])
        return Values(self.values.names, [self.values.rows[number] for number in chosen])


class MySQLVersionedSession:
    """A table that keeps the newest version of each key.

    `in_ledger`: it writes on the ledger's connection, inside its transaction, which is given back at the end; then a
    version that the row bears already is STALE. Else it has a connection of its own, and that is ALREADY: it may be
    this very record's earlier attempt.
    """

    def __init__(
        self,
        connection: MySQLConnection,
        values: TableValues,
        *,
        key: TableKey,
        versioned: Versioned,
        kind: Kind,
        occurrence: str | None,
        in_ledger: bool,
        store_id: bytes | None = None,
    ) -> None:
        self.connection = connection
        self.store_id = store_id
        self._values = values
        self._key = key
        self._versioned = versioned
        self._kind: Kind = kind
        self._occurrence = occurrence
        self._in_ledger = in_ledger

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key.table} {self._versioned} {self.connection!r}>"

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        if self._in_ledger and not self.connection.in_transaction:
            raise Misconfigured("a transactional sink writes inside the ledger's `transaction()` only")
        if not writes:
            return []
        with self.connection.within(timeout_seconds):
            batch = self._read(writes)
            found = self._find(batch)
            absent = [number for number in batch.best.values() if number not in found]
            older = [n for n in batch.best.values() if n in found and found[n][0] < batch.versions[n]]
            if older:
                with self.connection.unit():
                    self._insert(batch, absent)
                    self._replace(batch, older)
            else:
                self._insert(batch, absent)
            return self._answers(writes, batch, found, {*absent, *older})

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        if self._in_ledger:
            raise Misconfigured("a transactional sink has no record in doubt, so there is nothing to probe")
        if not writes:
            return []
        with self.connection.within(timeout_seconds):
            return probe_each(self._there, writes)

    def close(self) -> None:
        """Give the connection back, if it is its own. Safe to repeat."""
        if not self._in_ledger:
            self.connection.close()

    def _there(self, writes: Sequence[Write]) -> list[Answer | None]:
        batch = self._read(writes)
        found = self._find(batch)
        return [self._against(batch.versions[n], found[n]) if n in found else None for n in range(len(writes))]

    def _read(self, writes: Sequence[Write]) -> _Batch:
        names, rows = self._values.read(writes)
        by, versioned = names.index(self._versioned.by), self._versioned
        versions = [version_of(row[by], self._kind, versioned.by) for row in rows]
        kept = (*self._key.columns, versioned.by, *names[len(self._values.chosen) :])
        values = Values(names, buried(names, rows, versioned, keep=kept, default=DEFAULT))
        keys = self._key.texts(values)
        return _Batch(values=values, keys=keys, versions=versions, best=newest(keys, versions))

    def _find(self, batch: _Batch) -> Found:
        occurrence = "NULL" if self._occurrence is None else quoted(self._occurrence)
        rows = self._key.find(self.connection, batch.keys, f"{quoted(self._versioned.by)},{occurrence}")
        return {number: (self._parsed(version), occurrence) for number, (version, occurrence) in rows.items()}

    def _parsed(self, text: str) -> Version:
        """Return a version of the table. Raises `Misconfigured` for one of a day or month 0, which none can be."""
        if self._kind == "integer":
            return int(text)
        if text.startswith("0000-00-00"):
            # What a lax session stores for no date at all: older than every date, to the server's comparison, too.
            return datetime.min  # noqa: DTZ901
        try:
            return datetime.fromisoformat(text)
        except ValueError as error:
            table, by = self._key.table, self._versioned.by
            todo = f"UPDATE {table} SET {by}='1000-01-01' WHERE {by}='{text}'"
            raise Misconfigured(f"{table} has a row whose {by} is no date-time, {text}: {todo}") from error

    def _insert(self, batch: _Batch, absent: Sequence[int]) -> None:
        if not absent:
            return
        try:
            insert(self.connection, self._key.table, batch.rows(absent))
        except Duplicate:
            if self._is_race(batch, absent):
                raise Unavailable(f"a row of {self._key.table} was inserted while it was looked for") from None
            raise

    def _replace(self, batch: _Batch, older: Sequence[int]) -> None:
        """Replace all of these rows, or raise: whoever holds the transaction rolls it back."""
        changes = self._changes(batch.values.names)
        if insert(self.connection, self._key.table, batch.rows(older), also=changes) == UPDATED * len(older):
            return
        if self._is_race(batch, older):
            raise Unavailable(f"a row of {self._key.table} was changed while it was looked at")
        raise Rejected("refused", f"another unique key of {self._key.table} holds a value of the record")

    def _is_race(self, batch: _Batch, numbers: Sequence[int]) -> bool:
        """Tell whether another writer was faster, and not another unique key in the way.

        That can be told of a single record only. Of several, two may have keys that are equal to the table alone: then,
        as in the other cases, the caller gets on by halving the batch.
        """
        found = self._find(batch)
        return len(batch.keys) == 1 and all(n in found and found[n][0] >= batch.versions[n] for n in numbers)

    def _changes(self, names: Sequence[str]) -> str:
        """Return the assignments, the version last: those before it are to see the old one.

        The key is compared as well, since a row that another unique key leads to must stay as it is.
        """
        by = quoted(self._versioned.by)
        same = "".join([f"{quoted(name)}=VALUES({quoted(name)}) AND " for name in self._key.columns])
        newer = f"{same}VALUES({by})>{by}"
        columns = [quoted(name) for name in names if name not in self._key.columns and name != self._versioned.by]
        return " ON DUPLICATE KEY UPDATE " + ",".join(
            [f"{column}=IF({newer},VALUES({column}),{column})" for column in (*columns, by)]
        )

    def _answers(self, writes: Sequence[Write], batch: _Batch, found: Found, written: set[int]) -> list[Answer]:
        answers = []
        for number, key in enumerate(batch.keys):
            best = batch.best[key]
            if number in written:
                answers.append(WRITTEN)
            elif best in written:
                there = (batch.versions[best], writes[best].occurrence)
                answers.append(self._against(batch.versions[number], there) or STALE)
            else:
                answers.append(self._against(batch.versions[number], found[best]) or STALE)
        return answers

    def _against(self, version: Version, there: tuple[Version, bytes | None]) -> Answer | None:
        """Return what the row says of a version; None if it is newer than the row."""
        if version > there[0]:
            return None
        if version < there[0] or self._in_ledger:
            return STALE
        return ALREADY if self._occurrence is None else Answer(Outcome.ALREADY, occurrence=there[1])
