"""Measure a Flink job with the gate and without it, in turns.

Both sides make the same records, key them by shard, hop, buffer in keyed state and insert with our table writer;
theirs passes everything through. With `told` both give out what was written, as `write_once` does; without it nothing,
as `OnceSink`. The clock runs from the first record to the end of the last insert: the start of
workers is left out. The last line of stdout is a JSON object with the records a second of each side and round.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

from oncesink.connectors.clock import SystemClock
from oncesink.connectors.contract import Claim, Sink, Write
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_insert import insert
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_server import MySQLServer
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.secret import Secret
from oncesink.connectors.table_values import TableValues
from oncesink.transforms import Bloom, Fields, Gate, Results, SourcePosition, Written
from oncesink.transforms.flink_function import GateFunction, ShardFunction
from oncesink.transforms.flink_outputs import Outputs, discarding, side_outputs
from oncesink.transforms.flink_shards import shard_keys
from oncesink.transforms.flink_state import entry_of
from oncesink.transforms.flush import Flushed
from oncesink.transforms.gate import write_scope
from oncesink.transforms.metrics import Metrics
from oncesink.transforms.prepare import Item
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import DataStream, MapFunction, ProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

from benchmarks.mysql import COLUMNS, Target, orders
from tests import servers

SHARDS = 4
"""Batches gather shard by shard: one subtask of some ten thousand records a second fills few of them, and no more."""
VARIABLE = "ONCESINK_BENCHMARK_PASSWORD"
PASSWORD = Secret.env(VARIABLE)
VALUES = {name: name for name in COLUMNS}
SIDES = ("gate", "no gate")
NOBODY = Claim(b"", None, None)


def main(mode: str, told: bool, rounds: int, records: int) -> None:  # noqa: FBT001 - called by a program's text
    """Measure, and print the rates."""
    outputs = Outputs(filters=False, told=told)
    os.environ[VARIABLE] = servers.MYSQL_PASSWORD
    # A mini cluster would run "process" mode as threads of this program.
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112 - PyFlink spells it so
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    with servers.mysql_server() as mysql, servers.redis_server() as redis, tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            for side in SIDES:
                redis.reset()
                target = Target(mysql, unique=False)
                watch = Stopwatch(Path(folder, f"{number} {side}"))
                run(mode, side, target, redis.url, watch, records, outputs)
                if (arrived := target.rows()) != records:
                    raise AssertionError(f"{side}: {arrived} rows of {records} records")
                # The first round warms Java up.
                if number:
                    rates[side].append(records / watch.seconds())
    sys.stdout.write(f"{json.dumps(rates)}\n")


def run(mode: str, side: str, target: Target, redis: str, watch: Stopwatch, records: int, outputs: Outputs) -> None:
    """Run one side over all records."""
    configuration = Configuration()
    for name, value in {"rest.port": "0", "python.executable": sys.executable, "python.execution-mode": mode}.items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(1)
    numbers = environment.from_source(
        NumberSequenceSource(0, records - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    stream = numbers.map(MakeOrder(records, watch), Types.PICKLED_BYTE_ARRAY())
    if side == "gate":
        gate, table = gated(target, redis, records)
        keys = ShardFunction(gate, write_scope(gate, table), shard_keys(SHARDS, 128))
        behind_hop(stream, keys, TimedFunction(gate, table, outputs, watch), outputs)
    else:
        gate = Gate(scope="orders", key=Fields("order_id"), occurrence=None, shards=SHARDS)
        behind_hop(stream, KeyFunction(), UngatedFunction(gate, target.url, outputs, watch), outputs)
    environment.execute(side)


def behind_hop(stream: DataStream, keys: ProcessFunction, function: GateFunction, outputs: Outputs) -> None:
    """Build our topology around functions that are timed."""
    keyed = stream.process(keys, Types.PICKLED_BYTE_ARRAY()).key_by(itemgetter(0), Types.LONG())
    main = keyed.process(function, Types.PICKLED_BYTE_ARRAY())
    side_outputs(main, outputs, "measured")
    main.sink_to(discarding())


def gated(target: Target, redis: str, records: int) -> tuple[Gate, MySQLTable]:
    """Return the gate with all three tiers, over fresh tables, and the table in its transaction."""
    ledger = MySQLLedger(target.url, retention=timedelta(days=7), password=PASSWORD)
    ledger.create_tables()
    gate = Gate(
        scope="orders",
        key=Fields("order_id"),
        occurrence=SourcePosition("orders-v1", "topic", "partition", "offset"),
        ledger=ledger,
        cache=RedisCache(redis, ttl=timedelta(minutes=10)),
        membership=Bloom(capacity=records // SHARDS * 2, error_rate=0.001),
        shards=SHARDS,
    )
    return gate, MySQLTable(ledger, "orders", columns=VALUES)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times of one run, told by whichever process has them, in a file."""

    path: Path

    def tell(self) -> None:
        """Note the time: the first and the last count."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{time.monotonic()}\n")

    def seconds(self) -> float:
        """Return the time between the first and the last note."""
        times = [float(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return max(times) - min(times)


class MakeOrder(MapFunction):
    """Turn numbers into orders that were made before the clock runs."""

    def __init__(self, records: int, watch: Stopwatch) -> None:
        self._records = records
        self._watch = watch

    def open(self, runtime_context: Any) -> None:
        self._orders = list(orders(self._records))

    def map(self, value: int) -> dict[str, Any]:
        if value == 0:
            self._watch.tell()
        return self._orders[value]


class KeyFunction(ProcessFunction):
    """Key records by shard, as entries of the same form that the gate's have."""

    def open(self, runtime_context: Any) -> None:
        self._keys = shard_keys(SHARDS, 128)

    def process_element(self, value: dict[str, Any], ctx: Any) -> Iterator[tuple[Any, ...]]:
        yield entry_of(self._keys[zlib.crc32(value["order_id"].encode()) % SHARDS], value)


class TimedFunction(GateFunction):
    """The gate's function; the time is told after each batch."""

    def __init__(self, gate: Gate, sink: Sink, outputs: Outputs, watch: Stopwatch) -> None:
        super().__init__(gate, sink, outputs)
        self._watch = watch

    def connect(self, runtime_context: Any, metrics: Metrics) -> Any:
        return Timed(super().connect(runtime_context, metrics), self._watch)


class UngatedFunction(GateFunction):
    """The gate's function with everything but the gate: buffer, timers, batches, outputs."""

    def __init__(self, gate: Gate, url: str, outputs: Outputs, watch: Stopwatch) -> None:
        super().__init__(gate, None, outputs)
        self._url = url
        self._watch = watch

    def connect(self, runtime_context: Any, metrics: Metrics) -> Any:
        return Timed(Insert(self._url), self._watch)


class Timed:
    """A session with a stopwatch."""

    def __init__(self, inner: Any, watch: Stopwatch) -> None:
        self._inner = inner
        self._watch = watch
        self.clock = inner.clock
        self.prepare = inner.prepare
        self.deliver = inner.deliver
        self.close = inner.close

    def flush(self, items: Sequence[Item], membership: Any) -> Flushed:
        """Take a batch through, and tell the time."""
        done: Flushed = self._inner.flush(items, membership)
        self._watch.tell()
        return done


class Bare:
    """What stands in for preparing records."""

    def batch(self, records: Sequence[Any]) -> list[Item]:
        """Make items that nobody will recognise again."""
        return [Item(record, NOBODY) for record in records]


class Insert:
    """What stands in for the session of a gate: each batch is inserted and committed."""

    clock = SystemClock()
    prepare = Bare()

    def __init__(self, url: str) -> None:
        self._connection = MySQLConnection(MySQLServer(url=url, password=PASSWORD))
        self._values = TableValues("orders", COLUMNS, columns=VALUES)

    def flush(self, items: Sequence[Item], membership: object) -> Flushed:
        """Insert the records."""
        insert(self._connection, "orders", self._values.read([Write(item.record, b"", None) for item in items]))
        return Flushed([(item, Written(item.record)) for item in items])

    def deliver(self, results: Results) -> None:
        """Let everything through."""

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
