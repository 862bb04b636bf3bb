"""The servers that all other tests stand on."""

import socket
import time

import pymysql
import pytest

from tests.conftest import MySQLDatabase
from tests.servers import MYSQL_PASSWORD, RedisServer


def ask(server: RedisServer, line: str) -> bytes:
    """Send one line to Redis and return the reply as it came."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.5) as connection:
        connection.sendall(line.encode() + b"\r\n")
        return connection.recv(256)


def test_redis_keeps_its_data_through_a_kill_and_hangs_while_paused(redis_server: RedisServer) -> None:
    """A killed Redis refuses, a restarted one has what it acknowledged, a paused one does not answer."""
    assert ask(redis_server, "SET k v") == b"+OK\r\n"
    redis_server.kill()
    with pytest.raises(ConnectionRefusedError):
        ask(redis_server, "GET k")
    redis_server.restart()
    assert ask(redis_server, "GET k") == b"$1\r\nv\r\n"
    redis_server.pause()
    with pytest.raises(TimeoutError):
        ask(redis_server, "GET k")
    redis_server.resume()
    assert ask(redis_server, "GET k") == b"$1\r\nv\r\n"


def test_redis_is_empty_at_the_start_of_each_test(redis_server: RedisServer) -> None:
    """Nothing that another test wrote is there."""
    assert ask(redis_server, "DBSIZE") == b":0\r\n"


def test_mysql_keeps_its_data_through_a_kill(mysql_database: MySQLDatabase) -> None:
    """What was committed is there after a kill, under the same URL, and a wrong password is refused."""
    server = mysql_database.server
    with server.connect(mysql_database.name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (k INT PRIMARY KEY) ENGINE=InnoDB")
        cursor.execute("INSERT INTO t VALUES (7)")
    server.kill()
    server.restart()
    with server.connect(mysql_database.name) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT k, @@innodb_flush_log_at_trx_commit FROM t")
        assert cursor.fetchall() == ((7, 1),)
    assert MYSQL_PASSWORD not in mysql_database.url
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        pymysql.connect(host="127.0.0.1", port=server.port, user=mysql_database.user, password="wrong")


def test_a_server_that_a_test_left_paused_comes_back(redis_server: RedisServer) -> None:
    """The next test gets a server that answers, however the last one left it."""
    redis_server.pause()
    begin = time.monotonic()
    redis_server.revive()
    redis_server.reset()
    assert time.monotonic() - begin < 5
