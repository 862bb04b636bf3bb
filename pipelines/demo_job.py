"""What one run of the demo's pipeline is told, and how it tells how far it is. The same for every engine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from oncesink.connectors.contract import Cache
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.secret import Secret
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.sqlite_table import SQLiteTable
from oncesink.pipelines.demo_events import KEY, POSITION, SOURCE
from oncesink.pipelines.demo_tables import ONCE, Database
from oncesink.transforms import Bloom, Fields, Gate, SourcePosition

LEDGER_TABLE = "oncesink_demo_ledger"
RETENTION = timedelta(days=1)
CACHE_TTL = timedelta(hours=1)
REPORT_ROWS = 1000
"""How many rows go through a step before it tells so."""

Step = Literal["plain", "once"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Settings of one run, in a form that goes through a file into another process. Passwords are named, not held.

    `dies_after_rows`: the process ends, in the middle of a transaction, once so many rows went through the gate's sink.
    """

    folder: str
    scope: str
    flights: int
    ledger: str
    ledger_password_env: str | None = None
    redis: str | None = None
    redis_password_env: str | None = None
    dies_after_rows: int | None = None

    @property
    def deliveries(self) -> Path:
        """The events, as JSON lines."""
        return Path(self.folder, "deliveries.jsonl")

    @property
    def progress(self) -> Path:
        """Where the steps tell how far they are."""
        return Path(self.folder, "progress")

    @property
    def outcomes(self) -> Path:
        """Where a run that ended well leaves what came out of the gate."""
        return Path(self.folder, "outcomes.json")

    @property
    def last_words(self) -> Path:
        """Where a process that is about to die says what it leaves open."""
        return Path(self.folder, "last_words.json")

    @property
    def database(self) -> Database:
        """Where both tables are."""
        return Database(url=self.ledger, password_env=self.ledger_password_env)

    def save(self, path: Path) -> None:
        """Write it down."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read what `save` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def sink(self) -> SQLiteTable | MySQLTable:
        """Return the table behind the gate: in the ledger's own transaction."""
        if not self.database.is_mysql:
            return SQLiteTable(SQLiteLedger(self.ledger, retention=RETENTION, table=LEDGER_TABLE), ONCE)
        return MySQLTable(self.mysql_ledger(), ONCE)

    def mysql_ledger(self) -> MySQLLedger:
        """Return the ledger where it is one that needs its tables made."""
        return MySQLLedger(
            self.ledger, retention=RETENTION, table=LEDGER_TABLE, password=_secret(self.ledger_password_env)
        )

    def gate(self, *, shards: int = 16) -> Gate:
        """Return the gate: the flight is the key, and where the event stood is the occurrence."""
        sink = self.sink()
        return Gate(
            scope=self.scope,
            key=Fields(*KEY),
            occurrence=SourcePosition(SOURCE, *POSITION),
            ledger=sink.ledger if isinstance(sink, SQLiteTable) else self.mysql_ledger(),
            cache=self._cache(),
            membership=Bloom(capacity=max(1000, 2 * self.flights // shards), error_rate=0.001),
            shards=shards,
            rejected="output",
        )

    def _cache(self) -> Cache | None:
        if self.redis is None:
            return None
        return RedisCache(self.redis, ttl=CACHE_TTL, password=_secret(self.redis_password_env))


def report(job: Job, step: Step, rows: int = REPORT_ROWS) -> None:
    """Tell that so many more rows went through a step. Any process may do so at any time."""
    with job.progress.open("ab") as file:
        file.write(f"{step} {rows}\n".encode())


def read_progress(job: Job) -> Mapping[Step, int]:
    """Return how many rows went through each step."""
    done: dict[Step, int] = {"plain": 0, "once": 0}
    told = job.progress.read_text(encoding="utf-8") if job.progress.exists() else ""
    for line in told.splitlines():
        step, _, rows = line.partition(" ")
        done["plain" if step == "plain" else "once"] += int(rows)
    return done


def leave_outcomes(job: Job, outcomes: Mapping[str, int]) -> None:
    """Keep what came out of the gate, whole or not at all."""
    beside = job.outcomes.with_suffix(".part")
    beside.write_text(json.dumps(outcomes), encoding="utf-8")
    os.replace(beside, job.outcomes)  # noqa: PTH105 - as atomic as the operating system has it


def _secret(env: str | None) -> Secret | None:
    return None if env is None else Secret.env(env)
