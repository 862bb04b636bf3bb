"""The gate whose filters the group `rebuild` builds."""

import os
from datetime import timedelta

from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.secret import Secret
from oncesink.pipelines.jobs import Job
from oncesink.transforms import Bloom, Fields, Gate, SourcePosition

URL_ENV, PASSWORD_ENV = "REBUILD_URL", "REBUILD_PASSWORD"
SHARDS = 4


def the_ledger() -> MySQLLedger:
    """Return the ledger of this run."""
    return MySQLLedger(os.environ[URL_ENV], retention=timedelta(days=7), password=Secret.env(PASSWORD_ENV))


def the_job(rows: int) -> Job:
    """Return a filter of so many keys."""
    gate = Gate(
        scope="orders",
        key=Fields("order_id"),
        occurrence=SourcePosition("orders/1", "offset"),
        ledger=the_ledger(),
        membership=Bloom(capacity=max(rows // SHARDS, 1), error_rate=0.001),
        shards=SHARDS,
    )
    return Job(gate=gate, sink=None)


def the_job_here() -> Gate:
    """Return the gate for the command."""
    return the_job(int(os.environ["REBUILD_ROWS"])).gate
