"""Kafka through `drop_duplicates` into Kafka on a stand-alone Flink cluster; killed is all that `flink_kafka` kills.

Behind the filter stands Flink's own transactional sink; what it wrote is read as `read_committed`. There is no unique
key anywhere: each order is in the second topic once because its key passed once, and because what had passed and was
not committed was taken back.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.fire.kafka_on_flink import SECONDS, Delivery, World, through_kills
from tests.fire.scenario import Figures

ENVIRONMENT = "flink"

PASSED = "passed"
JOB = Path(__file__).parents[1] / "filter_job.py"


def run(*, quick: bool, folder: Path) -> Figures:
    """Let each order pass once."""
    return through_kills(IntoKafka, folder, orders=30_000 if quick else 600_000, rounds=1 if quick else 2)


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
