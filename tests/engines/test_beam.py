"""Beam's transforms: the contract of all engines, what is refused, what a job shows of itself."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam", reason="Beam is not installed here")

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.display import DisplayData
from oncesink.connectors.contract import Sink
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.memory import MemoryLedger, forget_all
from oncesink.connectors.memory_sinks import MemorySink
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.mysql_table import MySQLTable
from oncesink.connectors.redis_cache import RedisCache
from oncesink.connectors.secret import Secret
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.transforms import Batch, ByStamp, Gate
from oncesink.transforms.beam import (
    NAMESPACE,
    DropDuplicates,
    GateFn,
    ReadJsonLines,
    ShardFn,
    Stamp,
    StampFn,
    WindowedShardFn,
    WriteOnce,
)

from tests.engines.beam_world import (
    GATHERED,
    OPENED,
    CountedLedger,
    counts,
    forget_beam,
    gather,
    records_of,
    run_drop,
    run_job,
    run_write,
)
from tests.engines.engine_contract import GATE, LEDGER, SETUPS, TABLE, EngineContract, Outcomes, effects, ids, order

PASSWORD = "correct horse"

CONTRADICTIONS: dict[str, Callable[[], Any]] = {
    "an external sink and no on_replay": lambda: WriteOnce(GATE, MemorySink()),
    "the same for the function": lambda: GateFn(GATE, MemorySink()),
    "an external sink and no ledger": lambda: WriteOnce(replace(SETUPS["external"][0], ledger=None), MemorySink()),
    "a table of another ledger": lambda: WriteOnce(replace(GATE, ledger=MemoryLedger("another")), TABLE),
    "a filter and no ledger": lambda: DropDuplicates(replace(GATE, ledger=None)),
    "a filter function and no ledger": lambda: GateFn(replace(GATE, ledger=None)),
    "a filter and stamps": lambda: DropDuplicates(replace(GATE, occurrence=ByStamp())),
    "a filter and no occurrence": lambda: DropDuplicates(replace(GATE, occurrence=None)),
    "a filter and on_replay": lambda: DropDuplicates(replace(GATE, on_replay="write")),
    "one field for file and offset": lambda: ReadJsonLines(__file__, file_field="same", offset_field="same"),
    "no bytes a line": lambda: ReadJsonLines(__file__, max_line_bytes=0),
}


class TestBeam(EngineContract):
    """Whole jobs in the FnApiRunner."""

    def run(self, records: Sequence[Any], gate: Gate, sink: Sink) -> Outcomes:
        return run_write(records, gate, sink)

    def run_drop(self, records: Sequence[Any], gate: Gate) -> Outcomes:
        return run_drop(records, gate)


class OtherRunner(FlinkRunner):
    """A runner of somebody else's, which may use several machines."""


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    forget_all()
    yield from forget_beam()
    forget_all()


def applied(transform: Any, runner: Any, *options: str) -> Any:
    """Put a transform into a pipeline that is not run."""
    return beam.Pipeline(runner=runner, options=PipelineOptions(list(options))) | beam.Create([1]) | transform


def secretive_gate() -> tuple[Gate, Sink]:
    """Return a gate whose stores have passwords, in a URL's place and in the environment."""
    secret = Secret.env("ONCESINK_TEST_PASSWORD")
    ledger = MySQLLedger("mysql://once@127.0.0.1/orders", retention=timedelta(days=1), password=secret)
    cache = RedisCache("redis://127.0.0.1", ttl=timedelta(minutes=1), password=secret)
    return replace(GATE, ledger=ledger, cache=cache), MySQLTable(ledger, "orders")


def test_outputs_are_a_dict_and_attributes() -> None:
    """Both ways lead to the same collections, and a wrong name is told which ones there are."""
    written = applied(WriteOnce(GATE, TABLE), FnApiRunner())
    assert list(written) == ["written", "duplicates", "rejected", "parked"]
    assert written.duplicates is written["duplicates"]
    assert list(applied(DropDuplicates(GATE), FnApiRunner())) == ["passed", "duplicates", "rejected"]
    with pytest.raises(AttributeError, match=r"'passed'.*written, duplicates, rejected, parked"):
        _ = written.passed


def test_a_filter_keeps_the_type_of_its_records() -> None:
    """What passes can go into whatever took the records before."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    numbers = pipeline | beam.Create([1]) | beam.Map(int).with_output_types(int)
    assert (numbers | DropDuplicates(GATE)).passed.element_type is int


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictory_settings_are_refused_where_they_are_written(name: str) -> None:
    """Nobody has to start a job to hear of them."""
    with pytest.raises(Misconfigured):
        CONTRADICTIONS[name]()


def test_a_ledger_of_one_machine_is_refused_where_several_may_run(tmp_path: Path) -> None:
    """The message names the ledger, the runner and what to take; a shared ledger goes anywhere."""
    sqlite = SQLiteLedger(str(tmp_path / "ledger.db"), retention=timedelta(days=1))
    for ledger in (LEDGER, sqlite):
        gate = replace(GATE, ledger=ledger)
        for runner in (FlinkRunner(), OtherRunner()):
            with pytest.raises(Misconfigured, match=rf"{type(ledger).__name__}.*{type(runner).__name__}.*MySQLLedger"):
                applied(DropDuplicates(gate), runner)
    assert applied(WriteOnce(*secretive_gate()), FlinkRunner()).written is not None
    assert applied(WriteOnce(*SETUPS["without a ledger"]), FlinkRunner()).written is not None
    for local in (FnApiRunner(), BundleBasedDirectRunner(), "DirectRunner"):
        assert applied(DropDuplicates(replace(GATE, ledger=sqlite)), local).passed is not None


def test_a_ledger_of_one_process_is_refused_where_several_run(tmp_path: Path) -> None:
    """Memory is not shared between processes; a file is."""
    several = "--direct_running_mode=multi_processing"
    with pytest.raises(Misconfigured, match="multi_processing"):
        applied(WriteOnce(GATE, TABLE), "DirectRunner", several)
    sqlite = replace(GATE, ledger=SQLiteLedger(str(tmp_path / "ledger.db"), retention=timedelta(days=1)))
    assert applied(DropDuplicates(sqlite), "DirectRunner", several).passed is not None


@pytest.mark.parametrize(
    ("transform", "guarantee"),
    [
        (WriteOnce(GATE, TABLE), "exactly once into memory table table"),
        (WriteOnce(*SETUPS["external"]), "records in doubt"),
        (DropDuplicates(GATE), "every key passes for one occurrence"),
    ],
    ids=["table", "external", "filter"],
)
def test_a_transform_says_what_it_guarantees(transform: Any, guarantee: str) -> None:
    """So do the pages of a runner that show display data."""
    assert guarantee in repr(transform)
    assert "scope 'orders'" in repr(transform)
    shown = {item.key: item.value for item in DisplayData.create_from(transform).items}
    assert guarantee in shown["guarantee"]


def test_counts_are_metrics_of_the_job() -> None:
    """A runner shows them under the library's namespace."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    gather(records_of(pipeline, [order(1, 0), order(1, 0), order(1, 1), order(2, 2), {}]) | WriteOnce(GATE, TABLE))
    result = pipeline.run()
    result.wait_until_finish()
    found = counts(result)
    assert NAMESPACE == "oncesink"
    expected = {"written": 2, "replayed": 1, "duplicates": 1, "rejected": 1, "flushes": 1, "filter_negative": 2}
    assert {name: found[name] for name in expected} == expected


def test_batches_are_bounded_by_rows_and_by_bytes() -> None:
    """Whatever the size of a bundle, no flush takes more than the gate allows."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    gate = replace(GATE, batch=Batch(rows=4, bytes=10_000, record_bytes=10_000))
    small = [order(number, number) for number in range(8)]
    large = [order(number, number, "x" * 6_000) for number in range(8, 11)]
    gather(records_of(pipeline, small + large) | WriteOnce(gate, TABLE))
    result = pipeline.run()
    result.wait_until_finish()
    assert counts(result)["flushes"] == 5
    assert effects(TABLE) == list(range(11))


def test_nothing_that_travels_holds_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transform and function comes back from a pickle, and only the place of the password went along."""
    monkeypatch.setenv("ONCESINK_TEST_PASSWORD", PASSWORD)
    gate, sink = secretive_gate()
    assert gate.ledger.password.reveal() == PASSWORD  # type: ignore[union-attr]
    whole = [WriteOnce(gate, sink), DropDuplicates(gate), Stamp(), ReadJsonLines(__file__)]
    functions = [GateFn(gate, sink), GateFn(gate), ShardFn(gate, sink), WindowedShardFn(gate), StampFn()]
    for each in (*whole, *functions):
        data = pickle.dumps(each)
        assert PASSWORD.encode() not in data
        assert type(pickle.loads(data)) is type(each)


def test_a_password_in_a_url_does_not_travel_in_silence() -> None:
    """A literal one refuses to be pickled, so that it cannot land in a job's description."""
    ledger = MySQLLedger(f"mysql://once:{PASSWORD.replace(' ', '')}@127.0.0.1/orders", retention=timedelta(days=1))
    with pytest.raises(Misconfigured) as caught:
        pickle.dumps(GateFn(replace(GATE, ledger=ledger), MySQLTable(ledger, "orders")))
    assert PASSWORD.replace(" ", "") not in str(caught.value)


def test_stamped_records_are_written_once() -> None:
    """Records come out without their stamps; the same one sent twice has two stamps and is a duplicate."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    stamped = records_of(pipeline, [{"id": 1}, {"id": 2}, {"id": 1}]) | Stamp()
    gather(stamped | WriteOnce(replace(GATE, occurrence=ByStamp()), TABLE))
    pipeline.run().wait_until_finish()
    assert sorted(each.record["id"] for each in GATHERED["written"]) == [1, 2]
    assert [each.record for each in GATHERED["duplicates"]] == [{"id": 1}]
    assert effects(TABLE) == [1, 2]


def test_two_gates_fit_into_one_pipeline() -> None:
    """Their steps are named after their scopes, and a filter stands before a writer."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    passed = (records_of(pipeline, [order(1, 0), order(1, 1)]) | DropDuplicates(GATE)).passed
    gather({"first": (passed | WriteOnce(GATE, TABLE)).written})
    gather({"second": (passed | WriteOnce(replace(GATE, scope="copies"), MemorySink(drops_by_key=True))).written})
    pipeline.run().wait_until_finish()
    assert ids(GATHERED["first"]) == ids(GATHERED["second"]) == [1]


def test_a_job_gives_its_connections_back() -> None:
    """After a job, whether it ended well or not, no session is open."""
    gate = replace(GATE, ledger=CountedLedger(LEDGER))
    run_write([order(1, 1)], gate, TABLE)
    with pytest.raises(Exception, match="no_key"):
        run_write([{"pos": 2}], replace(gate, rejected="raise"), TABLE)
    assert OPENED["all"] == 2
    assert OPENED["open"] == 0


def test_an_empty_input_is_no_trouble() -> None:
    """A job without records ends, with nothing on any output."""
    assert not any(run_job([], WriteOnce(GATE, TABLE)).values())
