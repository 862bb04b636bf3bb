"""Give tests real servers: one of each kind a session, clean for each test, gone when the session ends."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TypeVar

import pytest

from tests import kafka_broker as kafka
from tests import servers
from tests.kafka_broker import KafkaBroker
from tests.servers import MySQLServer, RedisServer, Server, ServerMissing

NO_BROKER = "no Kafka broker: "
"""How the reason of such a skip begins: it needs the Maven client and a repository, which not every machine has."""

AnyServer = TypeVar("AnyServer", bound=Server)


@dataclass(frozen=True, kw_only=True, slots=True)
class MySQLDatabase:
    """An empty database of one test's own; the URL does not hold the password."""

    server: MySQLServer
    name: str
    url: str
    user: str = servers.MYSQL_USER
    password: str = servers.MYSQL_PASSWORD


@pytest.fixture(scope="session")
def session_redis() -> Iterator[RedisServer]:
    """Run one Redis for the session; tests take `redis_server`, which is clean."""
    yield from started(servers.redis_server())


@pytest.fixture(scope="session")
def session_mysql() -> Iterator[MySQLServer]:
    """Run one MariaDB for the session; tests take `mysql_server`, which runs."""
    yield from started(servers.mysql_server())


@pytest.fixture(scope="session")
def session_kafka() -> Iterator[KafkaBroker]:
    """Run one Kafka broker for the session; tests take `kafka_broker`, which runs."""
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(kafka.kafka_broker())
        except ServerMissing as missing:
            pytest.skip(f"{NO_BROKER}{missing}")
        yield broker


@pytest.fixture
def kafka_broker(session_kafka: KafkaBroker) -> KafkaBroker:
    """Give a Kafka broker that runs, whatever the last test did to it. Each test makes topics of its own."""
    session_kafka.revive()
    return session_kafka


@pytest.fixture(scope="session")
def mock_kafka() -> Iterator[str]:
    """Give the addresses of the client's own mock cluster, which needs nothing to be installed."""
    with kafka.mock_kafka() as addresses:
        yield addresses


@pytest.fixture
def redis_server(session_redis: RedisServer) -> RedisServer:
    """Give a Redis that runs and is empty, whatever the last test did to it."""
    session_redis.revive()
    session_redis.reset()
    return session_redis


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """Give the URL of an empty Redis."""
    return redis_server.url


@pytest.fixture
def mysql_server(session_mysql: MySQLServer) -> MySQLServer:
    """Give a MariaDB that runs, whatever the last test did to it."""
    session_mysql.revive()
    return session_mysql


@pytest.fixture
def mysql_database(mysql_server: MySQLServer) -> MySQLDatabase:
    """Give an empty database that no other test uses."""
    name = mysql_server.new_database()
    return MySQLDatabase(server=mysql_server, name=name, url=mysql_server.url(name))


def started(server: AbstractContextManager[AnyServer]) -> Iterator[AnyServer]:
    """Run a server, or skip the tests that want it; where CI is set a missing server is a failure."""
    try:
        running = server.__enter__()
    except ServerMissing as missing:
        if os.environ.get("CI", "").lower() in ("", "0", "false"):
            pytest.skip(str(missing))
        pytest.fail(str(missing))
    try:
        yield running
    finally:
        server.__exit__(None, None, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, with a count, what was not tested because no broker could be had, in CI as well."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    for reason, count in reasons.items():
        if reason.startswith(NO_BROKER):
            terminalreporter.write_line(f"NOT TESTED: {count} tests on a Kafka broker: {reason}", red=True, bold=True)
