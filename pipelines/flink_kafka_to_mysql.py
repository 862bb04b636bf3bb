r"""Orders from a Kafka topic into a MySQL table, each once: a PyFlink job to copy.

    flink run -pym oncesink.pipelines.flink_kafka_to_mysql -pyfs oncesink-0.1.0-py3-none-any.whl \
        -pyexec /opt/venv/bin/python -pyclientexec /opt/venv/bin/python \
        -j /opt/jars/flink-sql-connector-kafka-5.0.0-2.2.jar \
        --bootstrap kafka:9092 --topic orders --group orders-to-shop --source orders-cluster/1 \
        --mysql mysql://writer@db:3306/shop --table orders --columns order_id customer amount --key order_id \
        --redis redis://cache:6379/0

A message is a JSON object; `--key` names its fields that say which effect it is. Which delivery it is, topic, partition
and offset say: `--source` stands for the cluster and for this incarnation of the topic. The job goes on from its
checkpoints and savepoints, never from the group's offsets: stop it with `flink stop`, start it with `-s`. The group is
there so that others can see how far it is.

Delivery: exactly once; row and ledger row are one transaction.
Parallelism: that of the job (`-p`), up to `--shards`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from oncesink.connectors.mysql_table import MySQLTable
from oncesink.pipelines.flink_jsonl_to_mysql import add_rejected, add_stores, gate, ledger, rejected, settings
from oncesink.transforms import Fields, Gate, SourcePosition
from oncesink.transforms.flink import OnceSink
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, TableDescriptor

POSITION = ("topic", "partition", "offset")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the job and submit it."""
    options = parser().parse_args(arguments)
    environment = StreamExecutionEnvironment.get_execution_environment(settings(options))
    sink = OnceSink(of_messages(options), table(options), rejected=rejected(options))
    messages(environment, options).sink_to(sink)
    environment.execute(f"{options.topic} into {options.table}, once")


def messages(environment: StreamExecutionEnvironment, options: argparse.Namespace) -> DataStream:
    """Return the messages as rows (value, topic, partition, offset).

    The DataStream API's own source gives Python the value only; the Table API's has the rest as metadata columns.
    """
    tables = StreamTableEnvironment.create(environment)
    schema = (
        Schema.new_builder()
        .column("value", DataTypes.STRING())
        .column_by_metadata("topic", DataTypes.STRING(), is_virtual=True)
        .column_by_metadata("partition", DataTypes.INT(), is_virtual=True)
        .column_by_metadata("offset", DataTypes.BIGINT(), is_virtual=True)
        .build()
    )
    described = (
        TableDescriptor.for_connector("kafka")
        .schema(schema)
        # As it came: what is no JSON is refused by the gate, with a reason, and does not end the job.
        .format("raw")
        .option("topic", options.topic)
        .option("properties.bootstrap.servers", options.bootstrap)
        .option("properties.group.id", options.group)
        .option("properties.isolation.level", "read_committed")
        .option("scan.startup.mode", "earliest-offset")
        .build()
    )
    return tables.to_data_stream(tables.from_descriptor(described))


def of_messages(options: argparse.Namespace) -> Gate:
    """Return the gate of these messages: the key is inside the value, the position beside it."""
    key = Fields(*[("value", name) for name in options.key])
    return gate(options, key, SourcePosition(options.source, *POSITION))


def table(options: argparse.Namespace) -> MySQLTable:
    """Return the table, written in the ledger's transaction."""
    return MySQLTable(ledger(options), options.table, columns={name: ("value", name) for name in options.columns})


def parser() -> argparse.ArgumentParser:
    """Return the options of the job."""
    options = argparse.ArgumentParser(prog="flink_kafka_to_mysql", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--columns", nargs="+", required=True, help="the table's columns: fields of the same names")
    add_rejected(options)
    add_topic(options)
    add_stores(options)
    return options


def add_topic(options: argparse.ArgumentParser) -> None:
    """Add what any job that reads a topic is asked for."""
    options.add_argument("--bootstrap", required=True, help="host:port of a broker")
    options.add_argument("--topic", required=True)
    options.add_argument("--group", required=True, help="consumer group that shows how far the job is")


if __name__ == "__main__":
    main(sys.argv[1:])
