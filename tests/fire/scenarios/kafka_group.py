"""A group of consumers whose members are killed, stopped, held and replaced, and whose broker is killed, all at random.

The program is `pipelines/kafka_to_mysql.py` as users copy it: a table without a unique key, MySQL, Redis, a filter for
each partition. Producers send a third of the orders again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from oncesink.connectors import MySQLLedger, Secret
from oncesink.pipelines.kafka_to_mysql import RETENTION

from tests import servers
from tests.fire.audit import audit
from tests.fire.scenario import Figures
from tests.kafka.world import PARTITIONS, Kafka, orders
from tests.kafka_broker import KafkaBroker, kafka_broker
from tests.servers import ServerMissing, die_with_parent

TABLE = "CREATE TABLE orders (n BIGINT AUTO_INCREMENT PRIMARY KEY, order_id BIGINT, amount INT)"
PASSWORD_ENV = "ONCESINK_FIRE_PASSWORD"
TOPIC = "fire"
MEMBERS = 3
ACTIONS = ("kill", "kill", "kill", "stop", "hold", "kill the broker")
HELD_SECONDS = 4.0
"""Longer than a session: whoever is held is thrown out, and goes on as if nothing had been."""
YOUNG_SECONDS = 15.0
GROUP = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
STUCK_SECONDS = 300.0
SEED = 23


def run(*, quick: bool, folder: Path) -> Figures:
    """Do so many things to the group, then let it come to the end of its topic, and count."""
    many, rounds = (9_000, 6) if quick else (600_000, 40)
    try:
        with kafka_broker() as broker, servers.mysql_server() as mysql, servers.redis_server() as redis:
            database = mysql.new_database()
            password = Secret.literal(servers.MYSQL_PASSWORD)
            MySQLLedger(mysql.url(database), retention=RETENTION, password=password).create_tables()
            with closing(mysql.connect(database)) as connection, connection.cursor() as cursor:
                cursor.execute(TABLE)
                group = Group(broker, job(broker, mysql.url(database), redis.url), folder)
                group.haunt(many, rounds)
                cursor.execute("SELECT order_id, amount FROM orders")
                counted = audit(((n, n % 7) for n in range(many)), cursor.fetchall())
    except ServerMissing as missing:
        return Figures(notes=[f"kafka_group: NOT RUN: {missing}"])
    figures = group.figures
    figures.lost, figures.twice, figures.wrong = counted.lost, counted.twice, counted.wrong
    (folder / "keys").write_text("\n".join(counted.examples))
    return figures


class Group:
    """The members, and what is done to them."""

    def __init__(self, broker: KafkaBroker, command: list[str], folder: Path) -> None:
        self.figures = Figures()
        self._broker = broker
        self._kafka = Kafka(broker.bootstrap, make_topic=lambda name: broker.new_topic(name, PARTITIONS))
        self._command = command
        self._log = folder / "members.log"
        self._dice = random.Random(SEED)
        self._members: list[subprocess.Popen[bytes]] = []
        self._born: dict[int, float] = {}

    def haunt(self, many: int, rounds: int) -> None:
        """Send in slices; do something to the group while it writes each of them."""
        self._kafka.make_topic(TOPIC)
        actions = [ACTIONS[number % len(ACTIONS)] for number in range(rounds)]
        self._dice.shuffle(actions)
        try:
            self._members = [self._start() for _ in range(MEMBERS)]
            for action, (begin, end) in zip(actions, slices(many, rounds), strict=True):
                again = self._dice.sample(range(begin, end), (end - begin) // 3)
                self._kafka.send(TOPIC, orders([*range(begin, end), *again]))
                self._reaches(self.figures.records + self._dice.randrange(end - begin))
                self.figures.records += end - begin + len(again)
                self._do(action)
            self._reaches(self.figures.records)
            for each in self._members:
                self._stop(each)
        finally:
            for each in self._members:
                each.kill()
                each.wait()

    def _do(self, action: str) -> None:
        if action == "kill the broker":
            self._broker.kill()
            self.figures.cluster_kills += 1
            self._broker.start()
            return
        one = self._dice.choice(self._members)
        if one.poll() is not None:
            self.figures.broken.append(f"kafka_group: a member ended with {one.returncode}, see {self._log}")
        if action == "hold":
            one.send_signal(signal.SIGSTOP)
            time.sleep(HELD_SECONDS)
            one.send_signal(signal.SIGCONT)
            return
        if action == "stop":
            self._stop(one)
        else:
            one.kill()
            one.wait()
            self.figures.cluster_kills += 1
        self._members.remove(one)
        self._members.append(self._start())

    def _stop(self, one: subprocess.Popen[bytes]) -> None:
        one.send_signal(signal.SIGTERM)
        code = one.wait(STUCK_SECONDS)
        # Before it has opened its stores it has nothing to finish, and a signal ends it at once.
        young = time.monotonic() - self._born[one.pid] < YOUNG_SECONDS
        if code != 0 and not (young and code == -signal.SIGTERM):
            self.figures.broken.append(f"kafka_group: a stop came to {code}, see {self._log}")

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, PASSWORD_ENV: servers.MYSQL_PASSWORD}
        with self._log.open("ab") as log:
            process = subprocess.Popen(self._command, env=environment, stdout=log, stderr=log)
        self._born[process.pid] = time.monotonic()
        return process

    def _reaches(self, messages: int) -> None:
        """Wait until so many are committed. Raises if it gets stuck."""
        deadline = time.monotonic() + STUCK_SECONDS
        while (there := self._kafka.committed(TOPIC)) < messages:
            if time.monotonic() > deadline:
                raise TimeoutError(f"stuck with {there} of {messages} messages committed, see {self._log}")
            time.sleep(0.05)


def slices(many: int, parts: int) -> Iterator[tuple[int, int]]:
    """Cut a range into parts."""
    for part in range(parts):
        yield many * part // parts, many * (part + 1) // parts


def job(broker: KafkaBroker, mysql_url: str, redis_url: str) -> list[str]:
    """Return the command line."""
    command = [*die_with_parent(), sys.executable, "-m", "oncesink.pipelines.kafka_to_mysql"]
    command += ["--brokers", broker.bootstrap, "--topics", TOPIC, "--group", TOPIC, "--start", "earliest"]
    command += ["--source", "fire/1", "--mysql", mysql_url, "--mysql-password-env", PASSWORD_ENV]
    command += ["--table", "orders", "--columns", "order_id", "amount", "--key", "order_id", "--redis", redis_url]
    command += ["--linger-seconds", "0.1", "--capacity", "200000"]
    return command + [part for name, value in GROUP.items() for part in ("--setting", f"{name}={value}")]
