"""What `oncesink check` looks at, store by store."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

from oncesink.connectors.findings import Finding
from oncesink.connectors.mysql_check import check_ledger as check_mysql_ledger
from oncesink.connectors.mysql_check import check_scopes, check_server
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.redis_check import check_cache
from oncesink.connectors.redis_check import check_ledger as check_redis_ledger
from oncesink.connectors.redis_client import RedisClient
from oncesink.connectors.redis_ledger import RedisLedger
from oncesink.connectors.schema import SCOPES_TABLE, init_command
from oncesink.connectors.secret import Secret
from oncesink.connectors.sqlite_connection import SQLiteConnection
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.pipelines.jobs import Job
from oncesink.pipelines.stores import AnyLedger
from oncesink.pipelines.timing import Times, check_times


def of_ledger(ledger: AnyLedger) -> list[Finding]:
    """Look at a ledger and its server. Raises `Unavailable` or `Misconfigured` where it cannot be reached."""
    if isinstance(ledger, MySQLLedger):
        return _of_mysql(ledger)
    if isinstance(ledger, RedisLedger):
        with closing(RedisClient(ledger.endpoint)) as client:
            return check_redis_ledger(client)
    return _of_sqlite(ledger)


def of_job(job: Job, times: Times) -> list[tuple[str, Finding]]:
    """Look at the stores of a gate, and at its times; with each finding where it was found."""
    found = [("times", each) for each in check_times(job, times)]
    if isinstance(job.gate.ledger, (MySQLLedger, SQLiteLedger, RedisLedger)):
        found += [("ledger", each) for each in of_ledger(job.gate.ledger)]
    if isinstance(job.gate.cache, RedisCache):
        with closing(RedisClient(job.gate.cache.endpoint)) as client:
            found += [("cache", each) for each in check_cache(client)]
    return found


def of_cache(url: str, password: Secret | None) -> list[Finding]:
    """Look at a Redis that is to be a cache."""
    cache = RedisCache(url, ttl=timedelta(minutes=1), password=password)
    with closing(RedisClient(cache.endpoint)) as client:
        return check_cache(client)


def _of_mysql(ledger: MySQLLedger) -> list[Finding]:
    with closing(MySQLConnection(ledger.server)) as connection:
        server = check_server(connection)
        if any(each.severity == "error" for each in server):
            # A server that takes no writes cannot be asked who may write.
            return server
        return [
            *server,
            *check_scopes(connection, ledger.table),
            *check_mysql_ledger(connection, ledger.table),
        ]


def _of_sqlite(ledger: SQLiteLedger) -> list[Finding]:
    todo = f"{init_command(ledger.table)}, or let the job make it when it starts"
    if not Path(ledger.path).exists():
        return [Finding(severity="warning", what=f"there is no file {ledger.path}", todo=todo)]
    with closing(SQLiteConnection(ledger.path, busy=ledger.busy)) as connection:
        there = {name for (name,) in connection.query("SELECT name FROM sqlite_master WHERE type='table'")}
    missing = [table for table in (SCOPES_TABLE, ledger.table) if table not in there]
    return [
        Finding(severity="warning", what=f"{ledger.path}: table {table} is missing", todo=todo) for table in missing
    ]
