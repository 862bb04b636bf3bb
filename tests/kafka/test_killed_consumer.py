"""Real processes that die by SIGKILL between any two steps of a batch, and are started again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors.schema import mysql_ddl, mysql_scopes_ddl

from tests import servers
from tests.conftest import MySQLDatabase
from tests.kafka.test_consumer import POISON
from tests.kafka.world import SECONDS, Kafka, orders

PROGRAM = Path(__file__).with_name("killed_consumer.py")
PASSWORD_ENV = "KILL_TEST_PASSWORD"
GROUP = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200}


@pytest.fixture
def database(mysql_database: MySQLDatabase) -> MySQLDatabase:
    """Give a database with the ledger's tables and one of orders."""
    with closing(mysql_database.server.connect(mysql_database.name)) as connection, connection.cursor() as cursor:
        columns = "id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id INT, amount INT"
        for statement in (*mysql_ddl(), *mysql_scopes_ddl(), f"CREATE TABLE orders ({columns}) ENGINE=InnoDB"):
            cursor.execute(statement)
    return mysql_database


@contextmanager
def program(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program until the block ends, whatever comes."""
    environment = {**os.environ, PASSWORD_ENV: servers.MYSQL_PASSWORD}
    process = subprocess.Popen([sys.executable, *command], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stopped(process: subprocess.Popen[str]) -> None:
    """Tell it to stop, and see it come to a good end."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said


def until_committed(kafka: Kafka, topic: str, wanted: int, *processes: subprocess.Popen[str]) -> None:
    """Wait until so many messages are committed, by programs that go on running."""
    deadline = time.monotonic() + 2 * SECONDS
    while (there := kafka.committed(topic)) < wanted:
        for each in processes:
            assert each.poll() is None, each.communicate()[1]
        assert time.monotonic() < deadline, f"{there} of {wanted} are committed"
        time.sleep(0.1)


def test_a_death_between_any_two_steps_loses_and_doubles_nothing(
    broker: Kafka, database: MySQLDatabase, tmp_path: Path
) -> None:
    """Before the write, between write and finish, between finish and commit: the sink is asked where it is unknown."""
    topic, log = broker.topic(), tmp_path / "log"
    broker.send(topic, orders([*range(400), *range(0, 400, 4)]))
    # A static member comes back at once; another one would have to wait for the session of the dead one to end.
    kafka = {**broker.source(topic).settings, **GROUP, "group.instance.id": "only", "session.timeout.ms": 6000}
    settings: dict[str, Any] = {"topic": topic, "log": str(log), "mysql": database.url, "kafka": kafka}
    for batch, point in enumerate(("before write", "after write", "before commit"), start=1):
        before = broker.committed(topic)
        with program(str(PROGRAM), json.dumps({**settings, "die": point, "batch": batch})) as process:
            assert process.wait(SECONDS) == -signal.SIGKILL, process.communicate()[1]
        # At least the batch in which it died is not committed.
        assert broker.committed(topic) <= before + (batch - 1) * 50
    with program(str(PROGRAM), json.dumps({**settings, "die": None, "batch": 0})) as process:
        until_committed(broker, topic, 500, process)
        stopped(process)
    written = Counter(int(line.split()[0]) for line in log.read_text().splitlines())
    assert written == Counter(range(400))


def test_the_job_to_copy_survives_kills_with_another_one_beside_it(
    broker: Kafka, database: MySQLDatabase, redis_url: str, tmp_path: Path
) -> None:
    """Exactly once into MySQL: producers send again, one of two processes dies now and then, poison is put aside."""
    topic, letters, dice = broker.topic(), tmp_path / "dead.jsonl", random.Random(1)
    command = ["-m", "oncesink.pipelines.kafka_to_mysql", "--brokers", broker.bootstrap, "--topics", topic]
    command += ["--group", topic, "--start", "earliest", "--source", "cluster/1", "--table", "orders"]
    command += ["--mysql", database.url, "--mysql-password-env", PASSWORD_ENV, "--redis", redis_url]
    command += ["--columns", "order_id", "amount", "--key", "order_id", "--dead-letters", str(letters)]
    command += ["--batch-rows", "100", "--linger-seconds", "0.2", "--capacity", "10000"]
    command += [part for name, value in GROUP.items() for part in ("--setting", f"{name}={value}")]
    sent = 0
    with ExitStack() as stack:
        stays = stack.enter_context(program(*command))
        for round_ in range(3):
            numbers = list(range(round_ * 1000, round_ * 1000 + 1000))
            again = dice.sample(numbers, 300)
            broker.send(topic, orders(numbers))
            # What a producer sends again is another message, whether or not the broker drops its own repetitions.
            broker.send(topic, [*orders(again), *POISON.values()], enable_idempotence=True)
            sent += len(numbers) + len(again) + len(POISON)
            with program(*command) as dies:
                time.sleep(1.5 + dice.random())
                dies.kill()
        until_committed(broker, topic, sent, stays)
        stopped(stays)
    assert rows(database) == Counter(range(3000))
    reasons = {(each["record"]["_partition"], each["record"]["_offset"]): each["reason"] for each in lines(letters)}
    assert Counter(reasons.values()) == Counter(dict.fromkeys(POISON, 3))


def rows(database: MySQLDatabase) -> Counter[int]:
    """Return how often each order stands in the table."""
    with closing(database.server.connect(database.name)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT order_id FROM orders")
        return Counter(order for (order,) in cursor.fetchall())


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the dead letters."""
    return [json.loads(line) for line in path.read_text().splitlines()]
