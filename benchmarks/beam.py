"""A Beam pipeline with the gate against the same pipeline without it, on `FnApiRunner` and real servers.

Both make the same records, key them by shard, hop, batch, and write with our table writer into MySQL; theirs passes
everything through. All records are new. Beside it: the plainest pipeline, which has no keyed hop, and the share of duplicates
that reaches MySQL.
"""

import json
import os
import pickle
import tempfile
import time
import zlib
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.utils.windowed_value import WindowedValue

from benchmarks.mysql import BATCH_ROWS, COLUMNS, Target, compared, orders
from benchmarks.rows import MeasuredRow
from oncesink.connectors.contract import Write
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_insert import insert
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_server import MySQLServer
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.secret import Secret
from oncesink.connectors.table_values import TableValues
from oncesink.transforms import Bloom, Fields, Gate, OnceWriter, SourcePosition
from oncesink.transforms.beam import ReadJsonLines, WriteOnce
from tests import servers

ROUNDS = 5
RECORDS = 40_000
SHARDS = 16
VARIABLE = "ONCESINK_BENCHMARK_PASSWORD"
PASSWORD = Secret.env(VARIABLE)
"""A literal one does not leave the process, and a pipeline is pickled."""
NAMES = ("gate", "no gate", "no hop")


def rows() -> list[MeasuredRow]:
    """Measure the pipelines in turn, then the duplicates."""
    os.environ[VARIABLE] = servers.MYSQL_PASSWORD
    with servers.mysql_server() as mysql, servers.redis_server() as redis, tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "orders.jsonl")
        events.write_text("".join(map(event, orders(RECORDS))), encoding="utf-8")
        rates = measured(mysql, redis, events)
        reached = share(mysql, redis)
    return [
        compared("Beam with the gate, against the same without it", rates["gate"], rates["no gate"], at_least=0.5),
        compared("Beam with the gate, against the plainest pipeline", rates["gate"], rates["no hop"], at_least=None),
        reached,
    ]


def event(order: dict[str, Any]) -> str:
    """Return an order as a producer sends it."""
    plain = {name: order[name] for name in ("order_id", "customer_id", "currency", "status")}
    return json.dumps({**plain, "amount": str(order["amount"]), "ordered_at": order["ordered_at"].isoformat(" ")}) + "\n"


def measured(mysql: servers.MySQLServer, redis: servers.RedisServer, events: Path) -> dict[str, list[float]]:
    """Return records a second for each pipeline and round; the first round warms up and is not kept."""
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(ROUNDS + 1):
        for name in NAMES:
            target = Target(mysql, unique=False)
            redis.reset()
            step = write_once(target, redis) if name == "gate" else Ungated(target.url, keyed=name == "no gate")
            seconds = run(step, events)
            arrived = target.rows()
            if arrived != RECORDS:
                raise AssertionError(f"{name}: {arrived} rows of {RECORDS} records")
            if number:
                rates[name].append(RECORDS / seconds)
    return rates


def run(step: beam.PTransform[Any, Any], events: Path) -> float:
    """Run a pipeline over all records and return its seconds, from its start to its end."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | ReadJsonLines(str(events)) | step
    begin = time.perf_counter()
    pipeline.run().wait_until_finish()
    return time.perf_counter() - begin


def write_once(target: Target, redis: servers.RedisServer) -> WriteOnce:
    """Return the gate with all three tiers, over fresh tables."""
    ledger = MySQLLedger(target.url, retention=timedelta(days=7), password=PASSWORD)
    ledger.create_tables()
    gate = three_tiers(ledger, redis)
    return WriteOnce(gate, MySQLTable(ledger, "orders", columns={name: name for name in COLUMNS}))


def three_tiers(ledger: MySQLLedger, redis: servers.RedisServer) -> Gate:
    """Recognise orders by their id and deliveries by their position; filters are sized for the records."""
    return Gate(
        scope="orders",
        key=Fields("order_id"),
        occurrence=SourcePosition("orders-v1", "_file", "_offset"),
        ledger=ledger,
        cache=RedisCache(redis.url, ttl=timedelta(minutes=10)),
        membership=Bloom(capacity=RECORDS // SHARDS * 2, error_rate=0.001),
        shards=SHARDS,
    )


class Ungated(beam.PTransform):
    """The same steps with the gate left out; without the hop too, unless `keyed`."""

    def __init__(self, url: str, *, keyed: bool) -> None:
        super().__init__()
        self._url = url
        self._keyed = keyed

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[Any]:
        if not self._keyed:
            return records | "Write" >> beam.ParDo(WriteFn(self._url))
        keyed = records | "KeyByShard" >> beam.ParDo(KeyFn()).with_output_types(tuple[int, bytes])
        return keyed | "Write" >> beam.ParDo(KeyedWriteFn(self._url))


class KeyFn(beam.DoFn):
    """Key records by shard and pickle them, as the gate's own hop does."""

    def process(self, record: dict[str, Any]) -> Iterable[tuple[int, bytes]]:
        """Return the shard and the record."""
        return ((zlib.crc32(record["order_id"].encode()) % SHARDS, pickle.dumps(record, 5)),)


class WriteFn(beam.DoFn):
    """Buffer a bundle and insert it in batches, each committed by itself; pass the records on."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def setup(self) -> None:
        """Connect."""
        self._connection = MySQLConnection(MySQLServer(url=self._url, password=PASSWORD))
        self._values = TableValues("orders", COLUMNS, columns={name: name for name in COLUMNS})

    def start_bundle(self) -> None:
        """Begin with an empty buffer."""
        self._buffer: list[WindowedValue] = []

    def process(
        self, record: dict[str, Any], where: WindowedValue = beam.DoFn.WindowedValueParam
    ) -> Iterable[WindowedValue]:
        """Buffer the record, and insert a full batch."""
        return self.take(where)

    def take(self, record: WindowedValue) -> list[WindowedValue]:
        """Buffer the record; return a batch that was inserted."""
        self._buffer.append(record)
        return self.flush() if len(self._buffer) >= BATCH_ROWS else []

    def finish_bundle(self) -> Iterable[WindowedValue]:
        """Insert what is left."""
        return self.flush()

    def flush(self) -> list[WindowedValue]:
        """Insert what is buffered."""
        buffered, self._buffer = self._buffer, []
        if buffered:
            insert(self._connection, "orders", self._values.read([Write(each.value, b"", None) for each in buffered]))
        return buffered

    def teardown(self) -> None:
        """Disconnect."""
        self._connection.close()


class KeyedWriteFn(WriteFn):
    """The same behind the hop: state, which it does not use, is what makes the runner group by key."""

    STATE = BagStateSpec("unused", BytesCoder())

    def process(  # type: ignore[override]
        self,
        element: tuple[int, bytes],
        where: WindowedValue = beam.DoFn.WindowedValueParam,
        state: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterable[WindowedValue]:
        """Unpack and buffer the record, and insert a full batch."""
        return self.take(where.with_value(pickle.loads(element[1])))
