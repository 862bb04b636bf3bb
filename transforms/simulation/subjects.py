"""The library's own gates, one for each column of the crash table, over its verified fakes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ...connectors.contract import Sink
from ...connectors.memory import MemoryLedger
from ...connectors.memory_sinks import MemorySink, MemoryTable
from ..gate import Gate
from ..keys import Fields, SourcePosition
from .simulator import Subject
from .source import refuses

LEASE = timedelta(seconds=2)
GRACE = timedelta(seconds=1)
TIMEOUT = timedelta(milliseconds=500)

MODES = ("drop", "transactional", "drops_by_key", "write", "probe", "park")
REDIS_MODES = ("drop", "drops_by_key", "write", "probe", "park")


def subject(mode: str, *, redis: bool = False) -> Subject:
    """Return the gate of a mode; `redis`: its ledger is one whose fail-over loses rows."""
    ledger = MemoryLedger("simulated")
    settings: dict[str, Any] = {}
    sink: Sink | None = None
    if mode == "transactional":
        sink = MemoryTable(ledger, "simulated", refuses=refuses)
    elif mode != "drop":
        name = f"simulated {mode}{' on Redis' if redis else ''}"
        sink = MemorySink(name, drops_by_key=mode == "drops_by_key", refuses=refuses, timeout=TIMEOUT)
        settings = {"lease": LEASE, "grace": GRACE, "parked": "output"}
        if mode != "drops_by_key":
            settings["on_replay"] = mode
        if mode in ("write", "drops_by_key"):
            settings["redrive"] = "json"
    gate = Gate(scope="simulated", key=Fields("key"), occurrence=SourcePosition("s", "at"), ledger=ledger, **settings)
    return Subject(gate=gate, sink=sink, poison=True, loses_rows=redis)


def of_seed(seed: int) -> tuple[str, bool]:
    """Return mode and ledger of a seed, where the columns of the crash table take turns."""
    column, turn = seed % (len(MODES) + 1), seed // (len(MODES) + 1)
    return (MODES[column], False) if column < len(MODES) else (REDIS_MODES[turn % len(REDIS_MODES)], True)
