"""The contract of engines once more, by whole jobs in a mini cluster."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.contract import Sink
from oncesink.transforms import Gate
from oncesink.transforms.flink import drop_duplicates, write_once
from pyflink.common import Types

from tests.engines.engine_contract import EngineContract, Outcomes
from tests.engines.flink_world import mini_cluster

pytestmark = [pytest.mark.flink, pytest.mark.slow, pytest.mark.timeout(300)]

GATHERED: dict[str, list[Any]] = {}
"""What came out, by output: a mini cluster runs Python in the threads of this process."""


class Unpickle:
    """Turn numbers into records, whatever Flink's types would make of them."""

    def __init__(self, records: Sequence[Any]) -> None:
        self._pickled = [pickle.dumps(record) for record in records]

    def __call__(self, number: int) -> Any:
        return pickle.loads(self._pickled[number])


class Gather:
    """Keep what comes out of one output."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, element: Any) -> None:
        GATHERED[self._name].append(element)


def run_job(folder: Path, records: Sequence[Any], gate: Gate, sink: Sink | None) -> Any:
    """Run a job to its end, and return what came out."""
    GATHERED.clear()
    environment = mini_cluster(folder)
    numbers = environment.from_collection(list(range(len(records))), Types.LONG())
    stream = numbers.map(Unpickle(records), Types.PICKLED_BYTE_ARRAY())
    streams = drop_duplicates(stream, gate) if sink is None else write_once(stream, gate, sink)
    names = ("passed", "duplicates", "rejected") if sink is None else ("written", "duplicates", "rejected", "parked")
    for name in names:
        GATHERED[name] = []
        getattr(streams, name).map(Gather(name), Types.PICKLED_BYTE_ARRAY())
    environment.execute()
    return dict(GATHERED)


class TestFlinkJobs(EngineContract):
    """Both uses of the gate in process mode.

    Every kind of sink goes through the contract in `test_flink_contract.py`; each comes by in one job here.
    """

    @pytest.mark.parametrize("kind", ["transactional", "without a ledger"])
    def test_a_second_run_writes_nothing_and_reports_replays(self, kind: str) -> None:
        super().test_a_second_run_writes_nothing_and_reports_replays(kind)

    @pytest.mark.parametrize("kind", ["external"])
    def test_a_second_send_is_a_duplicate(self, kind: str) -> None:
        super().test_a_second_send_is_a_duplicate(kind)

    @pytest.mark.parametrize("kind", ["drops by key"])
    def test_what_the_sink_refuses_is_rejected_and_may_come_again(self, kind: str) -> None:
        super().test_what_the_sink_refuses_is_rejected_and_may_come_again(kind)

    @pytest.mark.parametrize("kind", ["external"])
    def test_observing_writes_everything_and_learns_what_a_live_gate_needs(self, kind: str) -> None:
        super().test_observing_writes_everything_and_learns_what_a_live_gate_needs(kind)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def run(self, records: Sequence[Any], gate: Gate, sink: Sink) -> Outcomes:
        return run_job(self.folder, records, gate, sink)  # type: ignore[no-any-return]

    def run_drop(self, records: Sequence[Any], gate: Gate) -> Outcomes:
        return run_job(self.folder, records, gate, None)  # type: ignore[no-any-return]
