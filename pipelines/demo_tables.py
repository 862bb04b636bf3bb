"""The demo's two tables, over the plain drivers: one is written as one would by hand, one through oncesink.

They are alike: a number of their own, where the delivery stood, and the flight. Neither has a key that could refuse a
second row. Nothing here uses the library: the rows are counted over these connections.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

Table = Literal["plain_flights", "once_flights"]
PLAIN: Table = "plain_flights"
ONCE: Table = "once_flights"

COLUMNS: Mapping[str, Literal["text", "number"]] = {
    "source": "text",
    "topic": "text",
    "partition": "number",
    "offset": "number",
    "time_hour": "text",
    "carrier": "text",
    "flight": "number",
    "tailnum": "text",
    "origin": "text",
    "dest": "text",
    "dep_delay": "number",
    "arr_delay": "number",
    "air_time": "number",
    "distance": "number",
}

ROWS_A_FETCH = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Database:
    """Where the tables are: `sqlite:///path` or `mysql://user@host:3306/database`, the password named beside it."""

    url: str
    password_env: str | None = None

    @property
    def is_mysql(self) -> bool:
        """Tell the two kinds apart."""
        return self.url.startswith("mysql:")

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """Open a DB-API connection that commits when it is told to, and close it at the end."""
        with closing(self._mysql() if self.is_mysql else self._sqlite()) as connection:
            yield connection

    def create(self, *, ledger_table: str) -> None:
        """Make both tables anew, and let go of the ledger that an earlier demo left."""
        with self.connect() as connection:
            cursor = connection.cursor()
            cursor.execute(f"DROP TABLE IF EXISTS {ledger_table}")
            for table in (PLAIN, ONCE):
                cursor.execute(f"DROP TABLE IF EXISTS {table}")
                cursor.execute(self._ddl(table))
            connection.commit()

    def insert(self, table: Table) -> str:
        """Return the statement for one row of all columns."""
        names = ", ".join(self._quoted(name) for name in COLUMNS)
        marks = ", ".join(["%s" if self.is_mysql else "?"] * len(COLUMNS))
        return f"INSERT INTO {table} ({names}) VALUES ({marks})"

    def count(self, connection: Any, table: Table) -> int:
        """Return the number of rows."""
        cursor = connection.cursor()
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        return int(cursor.fetchone()[0])

    def rows(self, connection: Any, table: Table, *groups: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield for each row a text for each group of columns: their values joined by `|`, NA where there is none."""
        cursor = connection.cursor()
        cursor.execute(f"SELECT {', '.join(self._joined(group) for group in groups)} FROM {table}")
        while part := cursor.fetchmany(ROWS_A_FETCH):
            yield from part

    def _joined(self, names: Sequence[str]) -> str:
        known = [f"COALESCE({self._quoted(name)}, 'NA')" for name in names]
        return f"CONCAT_WS('|', {', '.join(known)})" if self.is_mysql else " || '|' || ".join(known)

    def _ddl(self, table: Table) -> str:
        number = "BIGINT NULL" if self.is_mysql else "INTEGER"
        kinds = {"text": "VARCHAR(32) NULL" if self.is_mysql else "TEXT", "number": number}
        columns = ", ".join(f"{self._quoted(name)} {kinds[kind]}" for name, kind in COLUMNS.items())
        own = "BIGINT AUTO_INCREMENT PRIMARY KEY" if self.is_mysql else "INTEGER PRIMARY KEY"
        return f"CREATE TABLE {table} (id {own}, {columns}){' ENGINE=InnoDB' if self.is_mysql else ''}"

    def _quoted(self, name: str) -> str:
        return f"`{name}`" if self.is_mysql else f'"{name}"'

    def _sqlite(self) -> Any:
        # Flink opens a function in one thread and runs it in another, one after the other.
        connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30.0, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        return connection

    def _mysql(self) -> Any:
        import pymysql  # noqa: PLC0415 - only this form needs the driver

        parts = urlsplit(self.url)
        return pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=os.environ[self.password_env].encode() if self.password_env else b"",
            database=unquote(parts.path.lstrip("/")),
            charset="utf8mb4",
            connect_timeout=10,
            read_timeout=120,
            write_timeout=120,
        )
