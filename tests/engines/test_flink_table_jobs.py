"""Jobs whose records are rows of a table, with the columns that Kafka's table source gives: position and headers."""

import base64
import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from confluent_kafka import Producer
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.sqlite_table import SQLiteTable
from oncesink.transforms import Batch, Bloom, Gate, Header, SourcePosition
from oncesink.transforms.flink import OnceSink, OnceStreams
from pyflink.common import Types
from pyflink.datastream import DataStream
from pyflink.table import StreamTableEnvironment

from tests.conftest import NO_BROKER
from tests.engines.flink_jobs import RESTARTS, CrashOnce, committed_lines, create_table, files, table_ids, tell
from tests.engines.flink_world import mini_cluster
from tests.kafka_broker import KafkaBroker, flink_kafka_connector
from tests.servers import ServerMissing

pytestmark = [pytest.mark.flink, pytest.mark.timeout(300)]

PARTITIONS, ORDERS, RESENT = 2, 300, 100
COLUMNS = {"id": "id", "pos": "offset", "text": "text"}


def gate(folder: Path, key: Any) -> Gate:
    """Return a gate that tells deliveries apart by topic, partition and offset."""
    return Gate(
        scope="orders",
        key=key,
        occurrence=SourcePosition("orders@test", "topic", "partition", "offset"),
        ledger=SQLiteLedger(str(folder / "ledger.db"), retention=timedelta(days=1)),
        membership=Bloom(capacity=1000, error_rate=0.01),
        batch=Batch(rows=50, linger=timedelta(milliseconds=200)),
        shards=2,
    )


def write_once(folder: Path, stream: DataStream, key: Any) -> None:
    """Write the stream's rows into a table, and tell what became of each."""
    create_table(folder / "ledger.db")
    once = gate(folder, key)
    assert isinstance(once.ledger, SQLiteLedger)
    sink = OnceSink(once, SQLiteTable(once.ledger, "orders", columns=COLUMNS), told=True, one_machine=True)
    stream.sink_to(sink)
    assert isinstance(sink.results, OnceStreams)
    for name in ("written", "duplicates"):
        getattr(sink.results, name).map(tell_row, Types.STRING()).sink_to(files(folder / "told"))


def tell_row(outcome: Any) -> str:
    """Return an outcome as a line."""
    return tell(outcome._replace(record=json.dumps({"id": outcome.record.id})))


def told(folder: Path) -> Counter[str]:
    """Count the outcomes that Flink has committed, by kind; replays as they are."""
    return Counter(line.split()[0] for line in committed_lines(folder / "told"))


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_rows_of_a_table_are_recognised_by_header_and_position(tmp_path: Path, mode: str) -> None:
    """A map of headers gives the key, three columns the occurrence; equal offsets of two partitions are two."""
    rows = [
        {
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "headers": {"uuid": base64.b64encode(f"uuid {offset // 2}".encode()).decode()},
            "id": offset // 2,
            "text": f"order {offset // 2}",
        }
        for partition in range(PARTITIONS)
        for offset in range(20)
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    environment = mini_cluster(tmp_path, {"python.execution-mode": mode})
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(
        f"""
        CREATE TABLE deliveries (
            topic STRING, `partition` INT, `offset` BIGINT, headers MAP<STRING NOT NULL, BYTES NOT NULL>,
            id BIGINT, text STRING
        ) WITH ('connector' = 'filesystem', 'path' = '{(tmp_path / "in").as_uri()}', 'format' = 'json')
        """
    )
    write_once(tmp_path, tables.to_data_stream(tables.from_path("deliveries")), Header("uuid"))
    environment.execute()
    assert sorted(table_ids(tmp_path / "ledger.db")) == list(range(10))
    assert told(tmp_path) == {"Written": 10, "Duplicate": 30}


def test_what_comes_from_kafka_is_written_once_through_a_crash(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    """Messages with a producer's UUID, some of them sent twice, and read again after a crash: each order one row."""
    try:
        connector = flink_kafka_connector()
    except ServerMissing as missing:
        pytest.skip(f"{NO_BROKER}{missing}")
    topic = kafka_broker.new_topic("flink-orders", PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for number in [*range(ORDERS), *range(RESENT)]:
        value = json.dumps({"id": number, "text": f"order {number}"}).encode()
        producer.produce(topic, value, partition=number % PARTITIONS, headers={"uuid": f"uuid {number}".encode()})
    assert producer.flush(30) == 0
    settings = {**RESTARTS, "pipeline.jars": connector.as_uri()}
    environment = mini_cluster(tmp_path, settings)
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(
        f"""
        CREATE TABLE deliveries (
            topic STRING METADATA VIRTUAL, `partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL,
            headers MAP<STRING NOT NULL, BYTES NOT NULL> METADATA VIRTUAL,
            id BIGINT, text STRING
        ) WITH (
            'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
            'properties.bootstrap.servers' = '{kafka_broker.bootstrap}',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
            'properties.commit.offsets.on.checkpoint' = 'false'
        )
        """
    )
    rows = tables.to_data_stream(tables.from_path("deliveries"))
    crash = Crash(CrashOnce(tmp_path, at=ORDERS // 2))
    write_once(tmp_path, rows.map(crash, Types.PICKLED_BYTE_ARRAY()), Header("uuid"))
    environment.execute()
    assert (tmp_path / "crashed").exists()
    assert Counter(table_ids(tmp_path / "ledger.db")) == Counter(range(ORDERS))
    assert told(tmp_path) == {"Written": ORDERS, "Duplicate": RESENT}


class Crash:
    """Crash at an order, once."""

    def __init__(self, crash: CrashOnce) -> None:
        self._crash = crash

    def __call__(self, row: Any) -> Any:
        self._crash(json.dumps({"id": row.id, "pos": row.id}))
        return row
