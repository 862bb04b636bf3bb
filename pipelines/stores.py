"""Ledgers by their URL, and what commands may say of them."""

from __future__ import annotations

import re
from datetime import timedelta

from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.redis_ledger import RedisLedger
from oncesink.connectors.schema import LEDGER_TABLE
from oncesink.connectors.secret import Secret
from oncesink.connectors.sqlite_connection import SQLiteConnection
from oncesink.connectors.sqlite_ledger import SQLiteLedger

FORMS = "mysql://user@host:3306/database, sqlite:///path or redis://host:6379/0"

AnyLedger = MySQLLedger | SQLiteLedger | RedisLedger

ANY_RETENTION = timedelta(days=1)
"""Recipes want one; only opening a scope, which no command does that takes a URL, would use it."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def secret_of(password_env: str | None) -> Secret | None:
    """Return the password that an environment variable holds, if one is named."""
    return None if password_env is None else Secret.env(password_env)


def ledger_at(url: str, *, password: Secret | None, retention: timedelta, table: str = LEDGER_TABLE) -> AnyLedger:
    """Return the recipe of the ledger at a URL. Raises `Misconfigured`."""
    scheme = url.partition("://")[0]
    if scheme == "mysql":
        return MySQLLedger(url, retention=retention, password=password, table=table)
    if scheme == "sqlite":
        return SQLiteLedger(url, retention=retention, table=table)
    if scheme in ("redis", "rediss"):
        return RedisLedger(url, retention=retention, password=password)
    raise Misconfigured(f"a ledger is at {FORMS}: the URL begins otherwise")


def tables_of(ledger: AnyLedger, *, apply: bool) -> list[str]:
    """Return the statements that make a ledger's tables; run them if wanted. Raises `Misconfigured` for Redis."""
    if isinstance(ledger, RedisLedger):
        raise Misconfigured("a ledger in Redis needs no tables: see `oncesink check`")
    if apply and isinstance(ledger, MySQLLedger):
        ledger.create_tables()
    elif apply and isinstance(ledger, SQLiteLedger):
        _create_sqlite(ledger)
    return ledger.ddl


def _create_sqlite(ledger: SQLiteLedger) -> None:
    connection = SQLiteConnection(ledger.path, busy=ledger.busy)
    try:
        with connection.transaction():
            for statement in ledger.ddl:
                connection.execute(statement)
    finally:
        connection.close()


def duration(text: str) -> timedelta:
    """Read `90s`, `30m`, `12h` or `7d`. Raises `Misconfigured`."""
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise Misconfigured(f"a duration looks like 90s, 30m, 12h or 7d, not like {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
