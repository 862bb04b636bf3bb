"""Exactly-once into MySQL against the same table writer with the gate off.

Both sides insert the same rows with the same statement builder, batch size and commits, into fresh tables of one server
on its defaults, alternating. Theirs is itself held against `cursor.executemany`. All records are new.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime, timedelta
from typing import Any

from oncesink.connectors.contract import Write
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_insert import insert
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_server import MySQLServer
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.secret import Secret
from oncesink.connectors.table_values import TableValues
from oncesink.transforms.gate import Gate
from oncesink.transforms.keys import Fields, SourcePosition
from oncesink.transforms.writer import OnceWriter

from benchmarks.rows import MeasuredRow
from tests import servers

ROUNDS = 7
RECORDS = 40_000
BATCH_ROWS = 1000

ORDERS = """
CREATE TABLE orders (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_id VARCHAR(40) NOT NULL,
  customer_id BIGINT NOT NULL,
  amount DECIMAL(12,2) NOT NULL,
  currency CHAR(3) NOT NULL,
  status VARCHAR(16) NOT NULL,
  ordered_at DATETIME(6) NOT NULL,
  {key} (order_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
"""
COLUMNS = ("order_id", "customer_id", "amount", "currency", "status", "ordered_at")

Records = list[dict[str, Any]]
Variant = Callable[["Target"], AbstractContextManager[Callable[[Records], object]]]
"""Opens everything on a target and gives the function that is measured."""


class Target:
    """A fresh database with the table of orders."""

    def __init__(self, server: servers.MySQLServer, *, unique: bool) -> None:
        self.server = server
        self.name = server.new_database()
        self.url = server.url(self.name)
        self.password = Secret.literal(servers.MYSQL_PASSWORD)
        with closing(server.connect(self.name)) as connection, connection.cursor() as cursor:
            cursor.execute(ORDERS.format(key="UNIQUE KEY" if unique else "KEY"))

    def rows(self) -> int:
        """Count the rows that arrived, and drop the database."""
        with closing(self.server.connect(self.name)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM orders")
            [(count,)] = cursor.fetchall()
            cursor.execute(f"DROP DATABASE {self.name}")
        return int(count)


def rows() -> list[MeasuredRow]:
    """Measure both forms of `MySQLTable`, and the ungated writer itself."""
    with servers.mysql_server() as server:
        key = measured(server, [ungated, own_key, executemany], unique=True)
        ledger = measured(server, [ungated, with_ledger], unique=False)
    return [
        compared("table's own unique key", key[own_key], key[ungated], at_least=0.6),
        compared("ledger in one transaction", ledger[with_ledger], ledger[ungated], at_least=0.4),
        compared("the ungated writer against executemany", key[ungated], key[executemany], at_least=1.0),
    ]


def measured(server: servers.MySQLServer, variants: Sequence[Variant], *, unique: bool) -> dict[Variant, list[float]]:
    """Return records a second for each variant and round; the first round warms up and is not kept."""
    rates: dict[Variant, list[float]] = {variant: [] for variant in variants}
    for number in range(ROUNDS + 1):
        for variant in variants:
            target, records = Target(server, unique=unique), list(orders(RECORDS))
            with variant(target) as write:
                begin = time.perf_counter()
                write(records)
                seconds = time.perf_counter() - begin
            arrived = target.rows()
            if arrived != RECORDS:
                raise AssertionError(f"{variant.__name__}: {arrived} rows of {RECORDS} records")
            if number:
                rates[variant].append(RECORDS / seconds)
    return rates


def compared(name: str, ours: list[float], theirs: list[float], *, at_least: float | None) -> MeasuredRow:
    """Make a row of the medians."""
    ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
    return MeasuredRow(
        name=name,
        ours=statistics.median(ours),
        theirs=statistics.median(theirs),
        ratio=ratio,
        at_least=at_least,
        unit="records/s",
        raw={"ours": ours, "theirs": theirs},
    )


@contextmanager
def ungated(target: Target) -> Iterator[Callable[[Records], object]]:
    """Insert batches as the table sinks do, each committed by itself."""
    server = MySQLServer(url=target.url, password=target.password)
    values = TableValues("orders", COLUMNS, columns={name: name for name in COLUMNS})

    def write(records: Records) -> None:
        for batch in batches(records):
            insert(connection, "orders", values.read([Write(record, b"", None) for record in batch]))

    with closing(MySQLConnection(server)) as connection:
        yield write


@contextmanager
def executemany(target: Target) -> Iterator[Callable[[Records], object]]:
    """Insert batches as the driver does."""
    statement = f"INSERT INTO orders ({', '.join(COLUMNS)}) VALUES ({', '.join(f'%({name})s' for name in COLUMNS)})"

    def write(records: Records) -> None:
        for batch in batches(records):
            cursor.executemany(statement, batch)

    with closing(target.server.connect(target.name)) as connection, connection.cursor() as cursor:
        yield write


@contextmanager
def own_key(target: Target) -> Iterator[Callable[[Records], object]]:
    """Write once into a table that recognises its key."""
    columns = {name: name for name in COLUMNS}
    table = MySQLTable(target.url, "orders", unique=("order_id",), columns=columns, password=target.password)
    table.create_tables()
    with OnceWriter(gate(None), table) as writer:
        yield writer.write


@contextmanager
def with_ledger(target: Target) -> Iterator[Callable[[Records], object]]:
    """Write once in one transaction with the ledger."""
    ledger = MySQLLedger(target.url, retention=timedelta(days=7), password=target.password)
    ledger.create_tables()
    table = MySQLTable(ledger, "orders", columns={name: name for name in COLUMNS})
    with OnceWriter(gate(ledger), table) as writer:
        yield writer.write


def gate(ledger: MySQLLedger | None) -> Gate:
    """Recognise orders by their id and deliveries by their position."""
    position = SourcePosition("orders-v1", "topic", "partition", "offset")
    return Gate(scope="orders", key=Fields("order_id"), occurrence=position, ledger=ledger)


def orders(count: int) -> Iterator[dict[str, Any]]:
    """Yield events as a consumer sees them, of the types that JSON has: the order, and where it stood."""
    first = datetime(2026, 1, 1)  # noqa: DTZ001
    for number in range(count):
        yield {
            "order_id": f"order-{number * 2654435761 % 2**32:010d}-{number:07d}",
            "customer_id": number * 7919 % 1_000_003,
            "amount": f"{number % 100_000 / 100:.2f}",
            "currency": "EUR",
            "status": "paid" if number % 3 else "open",
            "ordered_at": (first + timedelta(seconds=number, microseconds=number % 1_000_000)).isoformat(" "),
            "topic": "orders",
            "partition": number % 12,
            "offset": number // 12,
        }


def batches(records: Records) -> Iterator[Records]:
    """Cut into batches."""
    for start in range(0, len(records), BATCH_ROWS):
        yield records[start : start + BATCH_ROWS]
