"""The two live table sinks of MySQL."""

from __future__ import annotations

from collections.abc import Sequence

from .contract import ALREADY, WRITTEN, Answer, Outcome, Write
from .errors import Misconfigured, Unavailable
from .mysql_connection import Duplicate, MySQLConnection
from .mysql_insert import insert
from .mysql_key import KeyText, TableKey
from .mysql_probe import probe_each
from .table_values import TableValues, Values

ATTEMPTS = 5
"""How often rows that others insert or delete meanwhile may upset one call."""


class MySQLTableSession:
    """Writes on the ledger's connection, inside its transaction. Closing it leaves the connection to the ledger."""

    def __init__(self, connection: MySQLConnection, values: TableValues, *, table: str) -> None:
        self._connection = connection
        self._table = table
        self._values = values

    @property
    def store_id(self) -> bytes | None:
        return None

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        if not self._connection.in_transaction:
            raise Misconfigured("a transactional sink writes inside the ledger's `transaction()` only")
        if writes:
            with self._connection.within(timeout_seconds):
                insert(self._connection, self._table, self._values.read(writes))
        return [WRITTEN] * len(writes)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise Misconfigured("a transactional sink has no record in doubt, so there is nothing to probe")

    def close(self) -> None:
        pass


class MySQLKeyedTableSession:
    """Inserts plainly over a connection of its own, and looks its keys up when one of them was there."""

    def __init__(
        self,
        connection: MySQLConnection,
        values: TableValues,
        *,
        key: TableKey,
        occurrence: str,
        store_id: bytes | None,
    ) -> None:
        self.connection = connection
        self._values = values
        self._table = key.table
        self._key = key
        self._occurrence = occurrence
        self._store_id = store_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._table} ({', '.join(self._key.columns)}) {self.connection!r}>"

    @property
    def store_id(self) -> bytes | None:
        return self._store_id

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        if not writes:
            return []
        with self.connection.within(timeout_seconds):
            values = self._values.read(writes)
            try:
                insert(self.connection, self._table, values)
            except Duplicate:
                return self._insert_absent(writes, values)
            return [WRITTEN] * len(writes)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        if not writes:
            return []
        with self.connection.within(timeout_seconds):
            return probe_each(self._there, writes)

    def close(self) -> None:
        self.connection.close()

    def _there(self, writes: Sequence[Write]) -> list[Answer | None]:
        found = self._find(self._key.texts(self._values.read(writes)))
        return [found.get(index) for index in range(len(writes))]

    def _insert_absent(self, writes: Sequence[Write], values: Values) -> list[Answer]:
        """Insert what is not there.

        Raises `Rejected` where a unique key refuses it although the declared key was not there before and after: it is
        another key, or two records of this call are equal to the table only.
        """
        keys = self._key.texts(values)
        looked = -1
        for _ in range(ATTEMPTS):
            found = self._find(keys)
            absent = {key: index for index, key in reversed(list(enumerate(keys))) if index not in found}
            try:
                chosen = sorted(absent.values())
                if chosen:
                    rows = Values(values.names, [values.rows[index] for index in chosen])
                    insert(self.connection, self._table, rows)
            except Duplicate:
                if len(found) == looked:
                    raise
                looked = len(found)
                continue
            return self._answers(writes, keys, found, absent)
        raise Unavailable(f"rows of {self._table} come and go while they are looked for")

    def _answers(
        self,
        writes: Sequence[Write],
        keys: list[KeyText],
        found: dict[int, Answer],
        absent: dict[KeyText, int],
    ) -> list[Answer]:
        answers = []
        for index, key in enumerate(keys):
            if index in found:
                answers.append(found[index])
            elif absent[key] == index:
                answers.append(WRITTEN)
            else:
                answers.append(self._already(writes[absent[key]].occurrence))
        return answers

    def _already(self, occurrence: bytes | None) -> Answer:
        return ALREADY if self._occurrence == "NULL" else Answer(Outcome.ALREADY, occurrence=occurrence)

    def _find(self, keys: Sequence[KeyText]) -> dict[int, Answer]:
        rows = self._key.find(self.connection, keys, self._occurrence)
        return {index: self._already(occurrence) for index, (occurrence,) in rows.items()}
