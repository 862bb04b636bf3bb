"""Start a real Kafka broker on free ports, and hurt it on purpose; and what Flink needs to read from one."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.maven import archives
from tests.servers import HOST, START_SECONDS, Server, ServerFailed, folder_of, free_port, program

BROKER = ("org.apache.kafka:kafka_2.13:4.1.1", "org.slf4j:slf4j-simple:1.7.36")
FLINK_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"

JVM = (
    "-Xmx512m",
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
ONE_COPY = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
USER, PASSWORD = "writer", "kafka secret"
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
ASK_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
"""A request for the versions of the protocol, as number 7 and by nobody."""


class KafkaBroker(Server):
    """One node that is broker and controller. What it acknowledged survives `kill`, as long as the machine stays up.

    Topics are made with `new_topic`, never by asking for them.
    """

    name = "kafka"

    def __init__(self, folder: Path, **settings: str) -> None:
        """Take settings of the broker beside the defaults, with `_` for `.`."""
        super().__init__(folder)
        self._java = program("java", install="default-jre-headless")
        self._archives = archives(*BROKER)
        self._controller_port, self._guarded_port = free_port(), free_port()
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    @property
    def bootstrap(self) -> str:
        """Return what clients take as `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def guarded(self) -> dict[str, str]:
        """Return settings of a client for the listener that asks for a password."""
        return {
            "bootstrap.servers": f"{HOST}:{self._guarded_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def start(self) -> None:
        """Format the storage on the first start, then run on it."""
        if not self._data.exists():
            self._format()
        super().start()

    def new_topic(self, name: str, partitions: int = 1, **settings: str) -> str:
        """Make a topic and return its name. Settings of the topic with `_` for `.`."""
        topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in settings.items()})
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([topic], operation_timeout=START_SECONDS)[name].result(START_SECONDS)
        # The controller has answered; the broker hears of it a moment later.
        deadline = time.monotonic() + START_SECONDS
        while not _led(admin, name, partitions):
            if time.monotonic() > deadline:
                raise ServerFailed(f"topic {name} has no leader")
            time.sleep(0.02)
        return name

    def command(self) -> list[str]:
        """Return the command line that runs it in the foreground."""
        return [*self._program, "kafka.Kafka", str(self._config)]

    def answers(self, connection: socket.socket) -> bool:
        """Tell whether a request is answered under its number."""
        connection.sendall(ASK_VERSIONS)
        return connection.recv(8)[4:] == struct.pack(">i", 7)

    @property
    def _program(self) -> list[str]:
        return [self._java, *JVM, "-cp", f"{self._archives}/*"]

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    def _format(self) -> None:
        controller = f"{HOST}:{self._controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"BROKER://{self.bootstrap},CONTROLLER://{controller},GUARDED://{HOST}:{self._guarded_port}",
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": LOGIN,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "BROKER",
            "log.dirs": str(self._data),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            # Long enough for a crowded machine; a broker that was killed waits for it before it is let in again.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "300",
            "group.min.session.timeout.ms": "500",
            "group.consumer.min.heartbeat.interval.ms": "200",
            "group.consumer.heartbeat.interval.ms": "300",
            "num.network.threads": "1",
            "num.io.threads": "2",
            **{f"{topic}.{what}": "1" for topic in ONE_COPY for what in ("replication.factor", "num.partitions")},
            **{f"{topic}.min.isr": "1" for topic in ONE_COPY[1:]},
            **self._settings,
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        command = [*self._program, "kafka.tools.StorageTool", "format", "-t", "A" * 22, "-c", str(self._config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"the storage of {self.name} was not formatted:\n{done.stdout}{done.stderr}")


def _led(admin: AdminClient, name: str, partitions: int) -> bool:
    """Tell whether a topic is there with all of its partitions."""
    found = admin.list_topics(name, timeout=START_SECONDS).topics[name]
    return found.error is None and sum(each.leader >= 0 for each in found.partitions.values()) == partitions


@contextmanager
def kafka_broker(**settings: str) -> Iterator[KafkaBroker]:
    """Run a broker of one's own until the block ends."""
    with folder_of("kafka") as folder, KafkaBroker(folder, **settings) as broker:
        yield broker


@contextmanager
def mock_kafka() -> Iterator[str]:
    """Run the client's own mock cluster, two brokers that live as long as a client does; give their addresses.

    It makes topics of four partitions when they are asked for. A group waits three seconds for its members, and takes
    none any more when they have left.
    """
    host = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "-", "log_level": 0})
    brokers = host.list_topics(timeout=START_SECONDS).brokers.values()
    yield ",".join(f"{each.host}:{each.port}" for each in brokers)
    host.close()


def flink_kafka_connector() -> Path:
    """Return the archive that gives Flink 2.2 and later its Kafka source. Raises `ServerMissing`."""
    (archive,) = archives(FLINK_CONNECTOR).glob("flink-sql-connector-kafka-*.jar")
    return archive
