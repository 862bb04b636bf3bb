"""Give tests real servers: one of each kind a session, clean for each test, gone when the session ends."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import pytest

from tests import servers
from tests.servers import MySQLServer, RedisServer, Server, ServerMissing

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
