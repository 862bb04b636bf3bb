"""A stand-alone Flink cluster that reads a Kafka topic, and all that can be killed of it."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from oncesink.connectors import MySQLLedger, Secret
from oncesink.pipelines.flink_jsonl_to_mysql import RETENTION

from tests import servers
from tests.engines.flink_cluster import FlinkCluster, build_wheel, until
from tests.fire.audit import audit
from tests.fire.scenario import Figures
from tests.kafka_broker import KafkaBroker, flink_kafka_connector, kafka_broker

TOPIC, GROUP, PARTITIONS = "orders", "orders-to-shop", 4
PASSWORD_ENV = "ONCESINK_FIRE_PASSWORD"
RESENT = 0.35
AT_ONCE, AHEAD = 1000, 10_000
"""So many orders are sent before the job's progress is looked at, and so far ahead of it."""
SECONDS = 300.0
"""For each thing that is waited for."""

Delivery = tuple[int, str]


def through_kills(make: Callable[..., World], folder: Path, *, orders: int, rounds: int) -> Figures:
    """Run a job through all kills and count; in no rounds, through the kill of a TaskManager."""
    os.environ[PASSWORD_ENV] = servers.MYSQL_PASSWORD
    # The workers get the package from the wheel alone.
    os.environ.pop("PYTHONPATH", None)
    with ExitStack() as stack:
        mysql = stack.enter_context(servers.mysql_server())
        redis = stack.enter_context(servers.redis_server())
        broker = stack.enter_context(kafka_broker())
        (folder / "flink").mkdir()
        cluster = stack.enter_context(FlinkCluster(folder / "flink"))
        world = make(folder, cluster, mysql, redis, broker)
        kills = 0
        with world.producing(orders):
            world.submit(parallelism=3)
            if not rounds:
                kills += world.at_work(world.kill_task_manager)
            for number in range(rounds):
                for kill in world.kills():
                    kills += world.at_work(kill)
                world.rescale(2 if number % 2 == 0 else 3)
        world.finish()
        sent, found = world.sent, world.found()
    counted = audit(sent, found)
    (folder / "keys").write_text("\n".join(counted.examples))
    return Figures(cluster_kills=kills, records=len(sent), lost=counted.lost, twice=counted.twice, wrong=counted.wrong)


class World(ABC):
    """The servers, the cluster with its job, and what was sent. A subclass says which job, and what it has written."""

    def __init__(
        self,
        folder: Path,
        cluster: FlinkCluster,
        mysql: servers.MySQLServer,
        redis: servers.RedisServer,
        broker: KafkaBroker,
    ) -> None:
        self.sent: list[Delivery] = []
        self.cluster, self.mysql, self.redis, self.broker = cluster, mysql, redis, broker
        self.database = mysql.new_database()
        password = Secret.literal(servers.MYSQL_PASSWORD)
        MySQLLedger(mysql.url(self.database), retention=RETENTION, password=password).create_tables()
        broker.new_topic(TOPIC, PARTITIONS)
        self.prepare()
        self._wheel = build_wheel(folder)
        self._task_managers = 0
        self._job = ""
        self._start_task_manager()
        self._start_task_manager()

    @contextmanager
    def producing(self, orders: int) -> Iterator[None]:
        """Send orders while the block runs, and at least so many."""
        errors: list[BaseException] = []
        enough = threading.Event()

        def send() -> None:
            try:
                self._send(orders, enough)
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                errors.append(error)

        # A daemon: where the block fails nobody waits for what the job will never read.
        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        yield
        enough.set()
        thread.join()
        if errors:
            raise errors[0]

    @abstractmethod
    def prepare(self) -> None:
        """Make what the job writes into."""

    @abstractmethod
    def job(self) -> list[str]:
        """Return the job's program and its own options."""

    @abstractmethod
    def rows(self) -> int:
        """Count what the job has written; a server that is away is asked until it is there."""

    @abstractmethod
    def found(self) -> list[Delivery]:
        """Return all that the job has written."""

    def submit(self, *, parallelism: int, savepoint: str | None = None) -> None:
        """Submit the job."""
        flink = ["-j", str(flink_kafka_connector()), "-p", str(parallelism), *(["-s", savepoint] if savepoint else [])]
        stores = ["--mysql", self.mysql.url(self.database), "--mysql-password-env", PASSWORD_ENV]
        stores += ["--table", "orders", "--key", "id", "--source", "fire/1", "--redis", self.redis.url]
        stores += ["--checkpoint-seconds", "1", "--capacity", "2000000", "--shards", "12", "--linger-seconds", "0.5"]
        topic = ["--bootstrap", self.broker.bootstrap, "--topic", TOPIC, "--group", GROUP]
        self._job = self.cluster.submit(*flink, "-pyfs", str(self._wheel), *self.job(), *topic, *stores)

    def kills(self) -> list[Callable[[], int]]:
        """Return what is killed in one round; each returns how many processes it killed."""
        stores = [partial(_kill, server) for server in (self.redis, self.mysql, self.broker)]
        return [self.kill_task_manager, self.cluster.kill_python, *stores]

    def at_work(self, kill: Callable[[], int]) -> int:
        """Kill once rows have come in since the last kill; return how many were killed."""
        before = self.rows()
        until(lambda: self.rows() > before, SECONDS)
        return kill()

    def kill_task_manager(self) -> int:
        """Kill the older one of two; start another."""
        self.cluster.kill_worker(f"worker {self._task_managers - 1}")
        self._start_task_manager()
        return 1

    def rescale(self, parallelism: int) -> None:
        """Stop with a savepoint and go on from it."""
        before = self.rows()
        until(lambda: self.rows() > before, SECONDS)
        savepoint = until(self._stopped, SECONDS)
        self.submit(parallelism=parallelism, savepoint=savepoint)

    def finish(self) -> None:
        """Wait until the job has read all that was sent, and let it write what it holds."""
        until(self._read_all, SECONDS)
        self.cluster.flink("stop", "--drain", "-p", (self.cluster.folder / "savepoints").as_uri(), self._job)

    def query(self, statement: str) -> Any:
        """Ask the database. Raises `OSError` while it is away."""
        try:
            with closing(self.mysql.connect(self.database)) as connection, connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall()
        except Exception as error:
            raise OSError(str(error)) from error

    def _start_task_manager(self) -> None:
        self._task_managers += 1
        self.cluster.start_workers(f"worker {self._task_managers}")

    def _stopped(self) -> str | None:
        """Stop the job, unless it is just being restored after a kill."""
        try:
            return self.cluster.stop_with_savepoint(self._job)
        except AssertionError:
            time.sleep(2)
            return None

    def _send(self, at_least: int, enough: threading.Event) -> None:
        """Send each order once, a third again later; keys spread them over partitions, so that copies may part."""
        chance = random.Random(7)
        # Without idempotence a broker that comes back may keep a message twice: one more duplicate, as in life.
        settings = {"bootstrap.servers": self.broker.bootstrap, "acks": "all", "message.timeout.ms": 300_000}
        # A broker that is killed on purpose is no news.
        producer = Producer({**settings, "log_level": 0})
        for order in count():
            if order % AT_ONCE == 0:
                if enough.is_set() and order >= at_least:
                    break
                # Never far ahead of the job, so that each kill meets a stream that flows.
                while order - self.rows() > AHEAD and not (enough.is_set() and order >= at_least):
                    time.sleep(0.1)
            self._produce(producer, order, chance)
            if chance.random() < RESENT:
                self._produce(producer, chance.randint(max(0, order - AHEAD), order), chance)
        left = producer.flush(SECONDS)
        if left:
            raise RuntimeError(f"{left} messages were not sent")

    def _produce(self, producer: Producer, order: int, chance: random.Random) -> None:
        delivery = (order, f"order {order}")
        message = json.dumps(dict(zip(("id", "note"), delivery, strict=True)))
        while True:
            try:
                producer.produce(TOPIC, message, partition=chance.randrange(PARTITIONS), on_delivery=_delivered)
                break
            except BufferError:
                producer.poll(0.5)
        producer.poll(0)
        self.sent.append(delivery)

    def _read_all(self) -> bool:
        """Tell whether the group's offsets, which follow the job's checkpoints, are at the end."""
        with closing(Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP})) as consumer:
            places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
            ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
            return [place.offset for place in consumer.committed(places, timeout=10)] == ends


def _kill(server: servers.Server) -> int:
    server.kill()
    time.sleep(0.5)
    server.start()
    return 1


def _delivered(error: Any, _: object) -> None:
    if error is not None:
        raise RuntimeError(f"a message was not sent: {error}")
