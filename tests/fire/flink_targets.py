"""What the jobs on the cluster write into."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.engines.flink_cluster import until
from tests.fire.kafka_on_flink import SECONDS, Delivery, World

TABLE = "CREATE TABLE orders (n BIGINT AUTO_INCREMENT PRIMARY KEY, id BIGINT, note VARCHAR(40))"

PASSED = "passed"
JOB = Path(__file__).with_name("filter_job.py")


class IntoMySQL(World):
    """The job to copy."""

    def prepare(self) -> None:
        self.query(TABLE)

    def job(self) -> list[str]:
        return ["-pym", "oncesink.pipelines.flink_kafka_to_mysql", "--columns", "id", "note"]

    def rows(self) -> int:
        [(many,)] = until(lambda: self.query("SELECT COUNT(*) FROM orders"), SECONDS)
        return int(many)

    def found(self) -> list[Delivery]:
        return list(self.query("SELECT id, note FROM orders"))


class IntoKafka(World):
    """The filter, and the topic behind it."""

    def prepare(self) -> None:
        self._kept: list[Delivery] = []
        self._next = 0
        # The producer looks at the progress as well.
        self._lock = Lock()
        self.broker.new_topic(PASSED)

    def job(self) -> list[str]:
        return ["-py", str(JOB), "--passed", PASSED]

    def rows(self) -> int:
        self._read()
        return len(self._kept)

    def found(self) -> list[Delivery]:
        self._read()
        return self._kept

    def _read(self) -> None:
        """Read on to the end of what is committed."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.broker.bootstrap,
            "group.id": "audit",
            "enable.auto.commit": False,
        }
        settings |= {"isolation.level": "read_committed", "enable.partition.eof": True}
        with self._lock, closing(Consumer(settings)) as reader:
            reader.assign([TopicPartition(PASSED, 0, self._next)])
            while (message := reader.poll(SECONDS)) is not None and message.error() is None:
                order = json.loads(message.value() or b"")
                self._kept.append((order["id"], order["note"]))
                self._next = (message.offset() or 0) + 1
