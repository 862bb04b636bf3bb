r"""JSON orders from Kafka into a MySQL table, each once: a program to copy, without an engine.

    oncesink init --ledger mysql://writer@db:3306/shop --password-env DB_PASSWORD --apply
    python -m oncesink.pipelines.kafka_to_mysql --brokers kafka:9092 --topics orders --group orders-writer \
        --start earliest --source orders@eu-1/1 \
        --mysql mysql://writer@db:3306/shop --mysql-password-env DB_PASSWORD --table orders \
        --columns order_id customer amount --key order_id --redis redis://cache:6379/0 \
        --dead-letters /var/lib/orders/dead.jsonl --metrics-port 9400

A value is a JSON object; `--key` names the fields that say which effect it is, or `--key-header` the header in which
the producer put a UUID. Which delivery it is, topic, partition and offset say, under the label of `--source`. SIGTERM
and SIGINT let it finish its batch, commit and leave the group; a second one ends it at once. Start as many as the topic
has partitions; one that dies is replaced by the others.

Delivery: exactly once; row and ledger row are one transaction, and offsets are committed behind it.
Parallelism: one thread a process; as many processes as the topics have partitions.
"""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from datetime import timedelta

from oncesink.connectors import JsonLinesSink, KafkaSource, MySQLLedger, MySQLTable, RedisCache, Secret
from oncesink.connectors.errors import OnceSinkError
from oncesink.pipelines.stop_on_signals import stop_on_signals
from oncesink.pipelines.told_retries import told_retries
from oncesink.transforms import (
    Batch,
    Bloom,
    Fields,
    Gate,
    Header,
    KafkaPosition,
    Metrics,
    OnceConsumer,
    PrometheusMetrics,
)

RETENTION = timedelta(days=7)
CACHE_TTL = timedelta(hours=1)
"""How long Redis remembers a finished key: longer than duplicates usually lie apart, shorter than RETENTION."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Read and write until a signal comes."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        consumer = OnceConsumer(gate(options), table(options), source(options), metrics=metrics(options))
        with told_retries(), consumer, stop_on_signals(consumer.stop):
            consumer.run()
    except OnceSinkError as error:
        sys.exit(f"kafka_to_mysql: {error}")


def source(options: Namespace) -> KafkaSource:
    """Return the topics and the client's settings; `--setting` takes any of librdkafka's by its own name."""
    password = {"sasl.password": Secret.env(options.kafka_password_env)} if options.kafka_password_env else {}
    settings = {
        "bootstrap.servers": options.brokers,
        "group.id": options.group,
        "auto.offset.reset": options.start,
        "partition.assignment.strategy": "cooperative-sticky",
        **password,
        **dict(options.setting),
    }
    return KafkaSource(*options.topics, settings=settings)


def gate(options: Namespace) -> Gate:
    """Return the gate: the ledger decides; Redis, and a Bloom filter for each partition, keep work away from it."""
    return Gate(
        scope=options.scope,
        key=Header(options.key_header, headers="_headers") if options.key_header else Fields(*options.key),
        occurrence=KafkaPosition(options.source),
        ledger=ledger(options),
        cache=cache(options),
        membership=Bloom(capacity=options.capacity, error_rate=0.001),
        batch=Batch(rows=options.batch_rows, linger=timedelta(seconds=options.linger_seconds)),
        rejected=JsonLinesSink(options.dead_letters) if options.dead_letters else "raise",
    )


def cache(options: Namespace) -> RedisCache | None:
    """Return the cache, if there is to be one."""
    if options.redis is None:
        return None
    password = Secret.env(options.redis_password_env) if options.redis_password_env else None
    return RedisCache(options.redis, ttl=CACHE_TTL, password=password)


def table(options: Namespace) -> MySQLTable:
    """Return the table, written in the ledger's transaction."""
    return MySQLTable(ledger(options), options.table, columns={name: name for name in options.columns})


def ledger(options: Namespace) -> MySQLLedger:
    """Return the ledger, in the table's own database. `oncesink init` makes its tables."""
    password = Secret.env(options.mysql_password_env) if options.mysql_password_env else None
    return MySQLLedger(options.mysql, retention=RETENTION, password=password)


def metrics(options: Namespace) -> Metrics | None:
    """Return what Prometheus reads, if a port was given."""
    if options.metrics_port is None:
        return None
    counted = PrometheusMetrics(options.scope)
    counted.serve(options.metrics_port)
    return counted


def named(text: str) -> tuple[str, str]:
    """Take `NAME=VALUE` apart."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ArgumentTypeError(f"NAME=VALUE is wanted, not {text!r}")
    return name, value


def parser() -> ArgumentParser:
    """Return the options of the program."""
    options = ArgumentParser(prog="kafka_to_mysql", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--brokers", required=True, help="host:port, several with commas")
    options.add_argument("--topics", nargs="+", required=True, help="topics to read")
    options.add_argument("--group", required=True, help="name of the group that shares the partitions")
    options.add_argument(
        "--start", required=True, choices=["earliest", "latest", "error"], help="where a new group begins"
    )
    options.add_argument("--source", required=True, help="label of cluster and topic: raise it when the topic is new")
    options.add_argument(
        "--setting", action="append", type=named, default=[], metavar="NAME=VALUE", help="of librdkafka; repeatable"
    )
    options.add_argument("--kafka-password-env", help="environment variable with sasl.password")
    options.add_argument("--mysql", required=True, help="mysql://user@host:3306/database")
    options.add_argument("--mysql-password-env", help="environment variable with its password")
    options.add_argument("--table", required=True, help="table of that database; needs no unique key")
    options.add_argument("--columns", nargs="+", required=True, help="its columns: fields of the same names")
    key = options.add_mutually_exclusive_group(required=True)
    key.add_argument("--key", nargs="+", metavar="FIELD", help="fields that say which effect it is")
    key.add_argument("--key-header", help="header in which the producer put a UUID")
    options.add_argument("--scope", default="orders", help="name of this sink, the same for every run (%(default)s)")
    options.add_argument("--redis", help="redis://host:6379/0; without it there is no cache")
    options.add_argument("--redis-password-env", help="environment variable with its password")
    options.add_argument("--dead-letters", help="file for messages that are refused; without it they end the program")
    options.add_argument(
        "--capacity", type=int, default=1_000_000, help="keys of each partition's filter (%(default)s)"
    )
    options.add_argument("--batch-rows", type=int, default=1000, help="records of a batch at most (%(default)s)")
    options.add_argument("--linger-seconds", type=float, default=1.0, help="a batch waits so long (%(default)s)")
    options.add_argument("--metrics-port", type=int, help="where Prometheus may ask")
    return options


if __name__ == "__main__":
    main(sys.argv[1:])
