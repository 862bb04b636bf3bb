"""Flink's binding under the contract of all engines, with its state and timers in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.contract import Scope, Sink
from oncesink.transforms import Gate
from oncesink.transforms.flink_function import GateFunction, ShardFunction
from oncesink.transforms.flink_outputs import Outputs
from oncesink.transforms.flink_shards import shard_keys
from oncesink.transforms.gate import drop_scope, write_scope
from pyflink.datastream import OutputTag

from tests.engines.engine_contract import EngineContract, Outcomes
from tests.engines.flink_harness import KeyedHarness

pytestmark = pytest.mark.flink


class TestFlink(EngineContract):
    """Prepare, hop and gate, as `write_once` and `drop_duplicates` put them together."""

    def run(self, records: Sequence[Any], gate: Gate, sink: Sink) -> Outcomes:
        found = drive(records, gate, sink, write_scope(gate, sink))
        return {"written": found.pop("main"), **found}

    def run_drop(self, records: Sequence[Any], gate: Gate) -> Outcomes:
        found = drive(records, gate, None, drop_scope(gate))
        return {"passed": found.pop("main"), **found}


def drive(records: Sequence[Any], gate: Gate, sink: Sink | None, scope: Scope) -> dict[str, list[Any]]:
    """Take records through both functions; return what came out, the main output under `main`."""
    prepare = ShardFunction(gate, scope, shard_keys(gate.shards, 128))
    prepare.open(None)
    harness = KeyedHarness(GateFunction(gate, sink, Outputs(filters=sink is None)))
    found: dict[str, list[Any]] = {kind: [] for kind in ("main", "duplicates", "rejected", "parked")}
    try:
        entries = [entry for record in records for entry in prepare.process_element(record, None)]
        outcomes = [outcome for entry in entries for outcome in harness.process(entry)]
        for outcome in outcomes + harness.finish():
            tagged = type(outcome) is tuple and isinstance(outcome[0], OutputTag)
            found[outcome[0].tag_id if tagged else "main"].append(outcome[1] if tagged else outcome)
    finally:
        harness.function.close()
    return found
