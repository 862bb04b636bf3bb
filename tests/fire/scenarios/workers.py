"""Plain writers, killed at random moments on every kind of target, and their servers killed under load."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import redis
from oncesink.connectors.schema import mysql_ddl, mysql_scopes_ddl

from tests import servers
from tests.fire.hunt import Hunt, Prey
from tests.fire.scenario import Figures
from tests.servers import MySQLServer, RedisServer, die_with_parent

PAGE = 100_000
ORDERS = "id INTEGER PRIMARY KEY {}, `order` INT, line INT, amount INT"


def run(*, quick: bool, folder: Path) -> Figures:
    """Hunt on each target in turn."""
    total = Figures()
    with ExitStack() as stack:
        mysql, red = stack.enter_context(servers.mysql_server()), stack.enter_context(servers.redis_server())
        for number, make in enumerate((table, external, external_on_redis, drops, sqlite)):
            with ExitStack() as own:
                prey = make(own, folder, mysql, red, quick)
                total += Hunt(prey, folder, 100 + number).run()
            red.revive()
            red.reset()
    return total


def table(stack: ExitStack, folder: Path, mysql: MySQLServer, red: RedisServer, quick: bool) -> Prey:
    """A table in the ledger's transaction, Redis as cache; both servers die too."""
    database = ledger_database(mysql)
    return Prey(
        name="table",
        settings={"kind": "table", "mysql": mysql.url(database), "redis": red.url},
        lines=30_000 if quick else 2_600_000,
        kills=2 if quick else 16,
        servers=[mysql, red] * (1 if quick else 4),
        workers=2,
        rows=lambda: mysql_rows(mysql, database),
    )


def external(stack: ExitStack, folder: Path, mysql: MySQLServer, red: RedisServer, quick: bool) -> Prey:
    """A log that knows no keys but can be asked; the ledger's server dies too."""
    database, log = ledger_database(mysql), folder / "external"
    return Prey(
        name="external",
        settings={"kind": "external", "mysql": mysql.url(database), "redis": red.url, "log": served(stack, log)},
        lines=9_000 if quick else 600_000,
        kills=3 if quick else 20,
        servers=[] if quick else [mysql],
        workers=2,
        batch=250,
        rows=lambda: logged(log),
        owners=lambda: mysql_owners(mysql, database),
        waits=True,
    )


def external_on_redis(stack: ExitStack, folder: Path, mysql: MySQLServer, red: RedisServer, quick: bool) -> Prey:
    """The same with Redis as the only ledger, which keeps what it acknowledged through its own death."""
    log = folder / "redis"
    return Prey(
        name="redis",
        settings={"kind": "redis", "redis": red.url, "log": served(stack, log)},
        lines=9_000 if quick else 800_000,
        kills=2 if quick else 12,
        servers=[red] * (1 if quick else 3),
        batch=250,
        rows=lambda: logged(log),
        owners=lambda: redis_owners(red),
        waits=True,
    )


def drops(stack: ExitStack, folder: Path, mysql: MySQLServer, red: RedisServer, quick: bool) -> Prey:
    """A log that recognises keys: a replay goes on at once."""
    database, log = ledger_database(mysql), folder / "drops"
    return Prey(
        name="drops",
        settings={"kind": "drops", "mysql": mysql.url(database), "redis": red.url, "log": served(stack, log, "drops")},
        lines=9_000 if quick else 600_000,
        kills=2 if quick else 8,
        rows=lambda: logged(log),
    )


def sqlite(stack: ExitStack, folder: Path, mysql: MySQLServer, red: RedisServer, quick: bool) -> Prey:
    """The embedded default."""
    path = folder / "orders.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE orders ({ORDERS.format('AUTOINCREMENT')})")
    return Prey(
        name="sqlite",
        settings={"kind": "sqlite", "sqlite": f"sqlite:///{path}"},
        lines=15_000 if quick else 900_000,
        kills=2 if quick else 8,
        rows=lambda: sqlite_rows(path),
    )


def served(stack: ExitStack, log: Path, *words: str) -> int:
    """Run the log's process until the target is done; return its port."""
    return stack.enter_context(log_process(log, *words))


@contextmanager
def log_process(log: Path, *words: str) -> Iterator[int]:
    """Run the process that keeps a log."""
    command = [*die_with_parent(), sys.executable, "-m", "tests.fire.log_server", str(log), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def ledger_database(mysql: MySQLServer) -> str:
    """Make a database with the ledger's tables and the business table."""
    mysql.revive()
    name = mysql.new_database()
    with closing(mysql.connect(name)) as connection, connection.cursor() as cursor:
        for statement in (
            *mysql_ddl(),
            *mysql_scopes_ddl(),
            f"CREATE TABLE orders ({ORDERS.format('AUTO_INCREMENT')})",
        ):
            cursor.execute(statement)
    return name


def mysql_rows(mysql: MySQLServer, database: str) -> Iterator[tuple[int, int]]:
    """Read the business table, page by page."""
    last = 0
    while page := select(
        mysql, database, f"SELECT id, `order`, amount FROM orders WHERE id > {last} ORDER BY id LIMIT {PAGE}"
    ):
        yield from ((order, amount) for _, order, amount in page)
        last = page[-1][0]


def mysql_owners(mysql: MySQLServer, database: str) -> set[bytes]:
    """Read whose rows are open."""
    return {
        bytes(owner)
        for (owner,) in select(mysql, database, "SELECT DISTINCT owner FROM oncesink_ledger WHERE state = 0")
    }


def select(mysql: MySQLServer, database: str, statement: str) -> list[Any]:
    """Ask the database behind the library's back."""
    with closing(mysql.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def redis_owners(red: RedisServer) -> set[bytes]:
    """Read whose rows are open: a row's second byte is its state, then comes its owner."""
    client = redis.Redis.from_url(red.url)
    with closing(client):
        keys = list(client.scan_iter("*:r:*", count=10_000))
        values: list[Any] = [
            value for at in range(0, len(keys), 10_000) for value in client.mget(keys[at : at + 10_000])
        ]
    return {bytes(value[2:18]) for value in values if value and value[1:2] == b"o"}


def sqlite_rows(path: Path) -> Iterable[tuple[int, int]]:
    """Read the business table."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.execute("SELECT `order`, amount FROM orders"))


def logged(log: Path) -> Iterator[tuple[int, int]]:
    """Read the log."""
    with log.open() as lines:
        for line in lines:
            key, content = line.split()
            yield int(key), int(content)
