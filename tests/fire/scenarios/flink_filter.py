"""Kafka through `drop_duplicates` into Kafka on a stand-alone Flink cluster; killed is all that `flink_kafka` kills.

Behind the filter stands Flink's own transactional sink; what it wrote is read as `read_committed`. There is no unique
key anywhere: each order is in the second topic once because its key passed once, and because what had passed and was
not committed was taken back.
"""

from __future__ import annotations

from pathlib import Path

from tests.fire.scenario import Figures

ENVIRONMENT = "flink"


def run(*, quick: bool, folder: Path) -> Figures:
    """Let each order pass once."""
    # PyFlink is not there where scenarios are looked for.
    from tests.fire.flink_targets import IntoKafka  # noqa: PLC0415
    from tests.fire.kafka_on_flink import through_kills  # noqa: PLC0415

    return through_kills(IntoKafka, folder, orders=20_000 if quick else 600_000, rounds=0 if quick else 2)
