r"""JSON lines into a MySQL table, each order once: a Beam job to copy.

    oncesink init --ledger mysql://writer@db:3306/shop --password-env DB_PASSWORD --apply
    python -m oncesink.pipelines.jsonl_to_mysql --input 'gs://shop/orders-*.jsonl' --source orders-bucket/1 \
        --mysql mysql://writer@db:3306/shop --mysql_password_env DB_PASSWORD --table orders \
        --columns order_id customer amount --key order_id --redis redis://cache:6379/0 \
        --dead_letters gs://shop/dead/orders.jsonl

A line is a JSON object; `--key` names the fields that say which effect it is. Which delivery it is, its file and its
offset there say. Options of Beam and of its runners (`--runner`, ...) stand beside these. Run again, over the same
files or over more, it writes what is not yet there. Passwords are in environment variables of the workers.

Delivery: exactly once; row and ledger row are one transaction.
Parallelism: up to `--shards`.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from datetime import timedelta

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from oncesink.connectors import JsonLinesSink, MySQLLedger, MySQLTable, RedisCache, Secret
from oncesink.transforms import Bloom, Fields, Gate, SourcePosition
from oncesink.transforms.beam import ReadJsonLines, WriteOnce

RETENTION = timedelta(days=7)
CACHE_TTL = timedelta(hours=1)
"""How long Redis remembers a finished key: longer than duplicates usually lie apart, shorter than RETENTION."""


def add_options(parser: ArgumentParser) -> None:
    """Add what the job is asked for. No class of Beam's: that would ask every pipeline of this process for the same."""
    parser.add_argument("--input", required=True, help="files of JSON lines, a pattern of any Beam file system")
    parser.add_argument("--source", required=True, help="label of the source: who reads, from where")
    parser.add_argument("--mysql", required=True, help="mysql://user@host:3306/database")
    parser.add_argument("--mysql_password_env", help="environment variable with its password")
    parser.add_argument("--table", required=True, help="table of that database; needs no unique key")
    parser.add_argument("--columns", nargs="+", required=True, help="its columns: fields of the same names")
    parser.add_argument("--key", nargs="+", required=True, help="fields that say which effect a line is")
    parser.add_argument("--scope", default="orders", help="name of this sink, the same for every run")
    parser.add_argument("--redis", help="redis://host:6379/0; without it there is no cache")
    parser.add_argument("--redis_password_env", help="environment variable with its password")
    parser.add_argument("--dead_letters", help="file for lines that are refused; without it they fail the job")
    parser.add_argument("--capacity", type=int, default=10_000_000, help="keys that the filters are made for")
    parser.add_argument("--shards", type=int, default=16, help="keys are spread over so many filters")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the job and run it to its end."""
    parser = ArgumentParser(prog="jsonl_to_mysql", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add_options(parser)
    options, of_beam = parser.parse_known_args(arguments)
    with beam.Pipeline(options=PipelineOptions(of_beam)) as pipeline:
        write(pipeline, options)


def write(pipeline: beam.Pipeline, options: Namespace) -> None:
    """Read, and write once. What else comes out (`duplicates`, ...) is there to be used."""
    lines = pipeline | ReadJsonLines(options.input)
    _ = lines | WriteOnce(gate(options), table(options))


def gate(options: Namespace) -> Gate:
    """Return the gate: the ledger decides; Redis, and a Bloom filter for each shard, keep work away from it."""
    return Gate(
        scope=options.scope,
        key=Fields(*options.key),
        occurrence=SourcePosition(options.source, "_file", "_offset"),
        ledger=ledger(options),
        cache=cache(options),
        membership=Bloom(capacity=max(options.capacity // options.shards, 1), error_rate=0.001),
        shards=options.shards,
        rejected=JsonLinesSink(options.dead_letters) if options.dead_letters else "raise",
    )


def table(options: Namespace) -> MySQLTable:
    """Return the table, written in the ledger's transaction."""
    return MySQLTable(ledger(options), options.table, columns={name: name for name in options.columns})


def ledger(options: Namespace) -> MySQLLedger:
    """Return the ledger, in the table's own database. `oncesink init` makes its tables."""
    return MySQLLedger(options.mysql, retention=RETENTION, password=secret(options.mysql_password_env))


def cache(options: Namespace) -> RedisCache | None:
    """Return the cache, if there is one."""
    if options.redis is None:
        return None
    return RedisCache(options.redis, ttl=CACHE_TTL, password=secret(options.redis_password_env))


def secret(env: str | None) -> Secret | None:
    """Return the password that an environment variable of the workers holds."""
    return Secret.env(env) if env else None


if __name__ == "__main__":
    main(sys.argv[1:])
