"""What a user would write instead, as the article does: one record at a time. And the same in batches."""

from collections.abc import Callable, Sequence
from typing import Any

import pymysql
import redis

Record = dict[str, Any]
Apply = Callable[[Record], None]

LOCK_SECONDS = 30
PROCESSED_SECONDS = 3600


def one_at_a_time(
    records: Sequence[Record], client: "redis.Redis", connection: "pymysql.Connection[Any]", apply: Apply
) -> int:
    """`SET NX EX`; nothing back: next; `INSERT IGNORE`; `COMMIT`; the business write; `SET PROCESSED EX`.

    One connection each. Returns how many were written.
    """
    written = 0
    with connection.cursor() as cursor:
        for record in records:
            key = f"idemp:{record['order_id']}"
            if not client.set(key, "LOCK", nx=True, ex=LOCK_SECONDS):
                continue
            inserted = cursor.execute("INSERT IGNORE INTO processed (order_id) VALUES (%s)", (record["order_id"],))
            connection.commit()
            if inserted:
                apply(record)
                written += 1
            client.set(key, "PROCESSED", ex=PROCESSED_SECONDS)
    return written


def in_batches(
    records: Sequence[Record], client: "redis.Redis", connection: "pymysql.Connection[Any]", apply: Apply
) -> int:
    """Do the same with a pipeline of 1000 `SET NX`, one multi-row `INSERT IGNORE`, one commit; return the rows."""
    written = 0
    with connection.cursor() as cursor:
        for start in range(0, len(records), 1000):
            batch = records[start : start + 1000]
            with client.pipeline(transaction=False) as pipeline:
                for record in batch:
                    pipeline.set(f"idemp:{record['order_id']}", "LOCK", nx=True, ex=LOCK_SECONDS)
                fresh = [record for record, new in zip(batch, pipeline.execute(), strict=True) if new]
            if not fresh:
                continue
            keys = [(record["order_id"],) for record in fresh]
            written += cursor.executemany("INSERT IGNORE INTO processed (order_id) VALUES (%s)", keys) or 0
            connection.commit()
            for record in fresh:
                apply(record)
            with client.pipeline(transaction=False) as pipeline:
                for record in fresh:
                    pipeline.set(f"idemp:{record['order_id']}", "PROCESSED", ex=PROCESSED_SECONDS)
                pipeline.execute()
    return written


PROCESSED = "CREATE TABLE processed (order_id VARCHAR(64) NOT NULL PRIMARY KEY) ENGINE=InnoDB"
