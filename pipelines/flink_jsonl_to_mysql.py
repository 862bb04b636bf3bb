r"""JSON lines into a MySQL table, each order once: a PyFlink job to copy.

    flink run -pym oncesink.pipelines.flink_jsonl_to_mysql -pyfs oncesink-0.1.0-py3-none-any.whl \
        -pyexec /opt/venv/bin/python -pyclientexec /opt/venv/bin/python \
        --input file:///data/orders --mysql mysql://writer@db:3306/shop --table orders \
        --mysql-password-env SHOP_PASSWORD --key order_id --position file line --redis redis://cache:6379/0 \
        --rejected file:///data/rejected

Or in a mini cluster: `python -m oncesink.pipelines.flink_jsonl_to_mysql --input ...`.

A line is a JSON object; `--key` names the fields that say which effect it is, `--position` those that say which
delivery: Flink tells no position of a line, so it stands in the line itself. The table has a column for each field.
Without `--rejected` a line that is refused fails the job, and what Flink does then its restart strategy says. The job
goes on from its checkpoints and savepoints: stop it with `flink stop`, start it with `-s`.

Delivery: exactly once; row and ledger row are one transaction.
Parallelism: that of the job (`-p`), up to `--shards`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta

from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.secret import Secret
from oncesink.transforms import Batch, Bloom, Fields, Gate, SourcePosition
from oncesink.transforms.flink import OnceSink
from pyflink.common import Configuration, Duration, WatermarkStrategy
from pyflink.common.serialization import Encoder
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

RETENTION = timedelta(days=7)
CACHE_TTL = timedelta(hours=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the job and submit it."""
    options = parser().parse_args(arguments)
    environment = StreamExecutionEnvironment.get_execution_environment(settings(options))
    position = SourcePosition(options.source, *options.position)
    sink = OnceSink(gate(options, Fields(*options.key), position), table(options), rejected=rejected(options))
    lines(environment, options).sink_to(sink)
    environment.execute(f"orders into {options.table}, once")


def rejected(options: argparse.Namespace) -> FileSink | None:
    """Return where records go that are refused, as lines of JSON; None: they fail the job."""
    if not options.rejected:
        return None
    return FileSink.for_row_format(options.rejected, Encoder.simple_string_encoder()).build()


def settings(options: argparse.Namespace) -> Configuration:
    """Return what the job needs from Flink: checkpoints that stay when it is cancelled."""
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.interval", f"{options.checkpoint_seconds} s")
    configuration.set_string("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION")
    return configuration


def lines(environment: StreamExecutionEnvironment, options: argparse.Namespace) -> DataStream:
    """Return the lines of all files below the input folder, and with `--watch` of those that come later."""
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), options.input)
    if options.watch_seconds:
        source = source.monitor_continuously(Duration.of_seconds(options.watch_seconds))
    return environment.from_source(source.build(), WatermarkStrategy.no_watermarks(), "JSON lines")


def gate(options: argparse.Namespace, key: Fields, occurrence: SourcePosition) -> Gate:
    """Return the gate: the ledger decides, Redis and a Bloom filter a shard keep work away from it."""
    return Gate(
        scope=options.scope,
        key=key,
        occurrence=occurrence,
        ledger=ledger(options),
        cache=cache(options),
        membership=Bloom(capacity=options.capacity // options.shards, error_rate=0.001),
        shards=options.shards,
        batch=Batch(rows=options.batch_rows, linger=timedelta(seconds=options.linger_seconds)),
    )


def ledger(options: argparse.Namespace) -> MySQLLedger:
    """Return the ledger, in the table's own database. `oncesink init` makes its tables."""
    return MySQLLedger(options.mysql, retention=RETENTION, password=secret(options.mysql_password_env))


def cache(options: argparse.Namespace) -> RedisCache | None:
    """Return the cache, if there is one."""
    if options.redis is None:
        return None
    return RedisCache(options.redis, ttl=CACHE_TTL, password=secret(options.redis_password_env))


def secret(env: str | None) -> Secret | None:
    """Return the password that an environment variable of the TaskManagers holds."""
    return Secret.env(env) if env else None


def table(options: argparse.Namespace) -> MySQLTable:
    """Return the table, written in the ledger's transaction."""
    return MySQLTable(ledger(options), options.table)


def parser() -> argparse.ArgumentParser:
    """Return the options of the job."""
    options = argparse.ArgumentParser(prog="flink_jsonl_to_mysql", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--input", required=True, help="URL of a folder of JSON lines")
    options.add_argument(
        "--position", nargs="+", required=True, metavar="FIELD", help="fields that say which delivery it is"
    )
    options.add_argument(
        "--watch-seconds", type=int, default=0, help="look for new files so often, and never end; 0: end"
    )
    add_rejected(options)
    add_stores(options)
    return options


def add_rejected(options: argparse.ArgumentParser) -> None:
    """Add what `rejected` reads."""
    options.add_argument(
        "--rejected",
        help="URL of a folder for records that are refused, as lines of JSON; without it they fail the job",
    )


def add_stores(options: argparse.ArgumentParser) -> None:
    """Add what any job into MySQL is asked for."""
    options.add_argument("--mysql", required=True, help="mysql://user@host:3306/database")
    options.add_argument(
        "--mysql-password-env", help="environment variable of the TaskManagers that holds the password"
    )
    options.add_argument("--table", required=True)
    options.add_argument("--scope", default="orders", help="name of this sink, the same for every run")
    options.add_argument(
        "--key", nargs="+", required=True, metavar="FIELD", help="fields that say which effect a record is"
    )
    options.add_argument("--source", default="orders", help="label of the source: who reads, from where")
    options.add_argument("--redis", help="redis://host:6379/0; without it there is no cache")
    options.add_argument(
        "--redis-password-env", help="environment variable of the TaskManagers that holds its password"
    )
    options.add_argument("--capacity", type=int, default=10_000_000, help="keys that the filters are made for")
    options.add_argument("--shards", type=int, default=16)
    options.add_argument("--batch-rows", type=int, default=1000)
    options.add_argument("--linger-seconds", type=float, default=1.0)
    options.add_argument("--checkpoint-seconds", type=int, default=60)


if __name__ == "__main__":
    main(sys.argv[1:])
