"""A Beam pipeline with the gate against the same pipeline without it, on `FnApiRunner` and real servers.

Both make the same records, key them by shard, hop, batch, and write with our table writer into MySQL; theirs passes
everything through. All records are new. Beside it: the plainest pipeline, which has no keyed hop.
"""

import json
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.redis_cache import RedisCache
from oncesink.transforms import Bloom, Fields, Gate, SourcePosition
from oncesink.transforms.beam import ReadJsonLines, WriteOnce

from benchmarks.beam_ungated import PASSWORD, SHARDS, VARIABLE, Ungated
from benchmarks.mysql import COLUMNS, Target, compared, orders
from benchmarks.rows import MeasuredRow
from tests import servers

ROUNDS = 7
RECORDS = 40_000
NAMES = ("gate", "no gate", "no hop")


def rows() -> list[MeasuredRow]:
    """Measure the pipelines in turn."""
    os.environ[VARIABLE] = servers.MYSQL_PASSWORD
    with servers.mysql_server() as mysql, servers.redis_server() as redis, tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "orders.jsonl")
        events.write_text("".join(map(event, orders(RECORDS))), encoding="utf-8")
        rates = measured(mysql, redis, events)
    return [
        compared("Beam with the gate, against the same without it", rates["gate"], rates["no gate"], at_least=0.5),
        compared("Beam with the gate, against the plainest pipeline", rates["gate"], rates["no hop"], at_least=None),
    ]


def event(order: dict[str, Any]) -> str:
    """Return an order as a producer sends it."""
    plain = {name: order[name] for name in ("order_id", "customer_id", "currency", "status")}
    return json.dumps({**plain, "amount": order["amount"], "ordered_at": order["ordered_at"]}) + "\n"


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
    """Return the gate with all three tiers, over fresh tables; filters have room for twice the records."""
    ledger = MySQLLedger(target.url, retention=timedelta(days=7), password=PASSWORD)
    ledger.create_tables()
    gate = Gate(
        scope="orders",
        key=Fields("order_id"),
        occurrence=SourcePosition("orders-v1", "_file", "_offset"),
        ledger=ledger,
        cache=RedisCache(redis.url, ttl=timedelta(minutes=10)),
        membership=Bloom(capacity=2 * RECORDS // SHARDS, error_rate=0.001),
        shards=SHARDS,
    )
    return WriteOnce(gate, MySQLTable(ledger, "orders", columns={name: name for name in COLUMNS}))
