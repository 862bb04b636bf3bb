"""Kafka into MySQL on a stand-alone Flink cluster: everything that takes part is killed, again and again.

The job is `pipelines/flink_kafka_to_mysql.py` as users copy it, submitted from a wheel to a JobManager and two
TaskManagers, checkpoints each second: a table without a unique key, MySQL, Redis, Bloom filters. Meanwhile a producer
sends orders, a third of them again. Killed are TaskManagers, a Python worker alone, Redis, MariaDB, the broker, each
started again on what it had on disk; then a savepoint, and on with another parallelism.
"""

from __future__ import annotations

from pathlib import Path

from tests.fire.scenario import Figures

ENVIRONMENT = "flink"


def run(*, quick: bool, folder: Path) -> Figures:
    """Write orders into a table that would take a second row."""
    # PyFlink is not there where scenarios are looked for.
    from tests.fire.flink_targets import IntoMySQL  # noqa: PLC0415
    from tests.fire.kafka_on_flink import through_kills  # noqa: PLC0415

    return through_kills(IntoMySQL, folder, orders=60_000 if quick else 1_500_000, rounds=1 if quick else 4)
