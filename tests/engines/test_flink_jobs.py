"""Whole jobs in a mini cluster: crash and restore, side outputs, Flink's own sinks, one's own, both execution modes."""

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.sqlite_table import SQLiteTable
from oncesink.transforms import Batch, Bloom, ByStamp, Fields, Gate, SourcePosition
from oncesink.transforms.flink import FilteredStreams, OnceSink, OnceStreams, drop_duplicates, stamp, write_once
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

from tests.engines.flink_jobs import (
    RESTARTS,
    Appending,
    CrashOnce,
    committed_lines,
    create_table,
    files,
    lane_of,
    table_ids,
    tell,
    write_lines,
)
from tests.engines.flink_world import mini_cluster

pytestmark = [pytest.mark.flink, pytest.mark.timeout(300)]

RECORDS, RESENT, BAD = 3000, 900, 3
DISTINCT = RECORDS - RESENT


def lines(environment: Any, path: Path, crash: CrashOnce | None = None) -> Any:
    """Return the stream of a file's lines, with a crash on the way."""
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path.as_uri()).build()
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    return stream if crash is None else stream.map(crash, Types.STRING())


def ledger(folder: Path) -> SQLiteLedger:
    return SQLiteLedger(str(folder / "ledger.db"), retention=timedelta(days=1))


def gate(folder: Path, **more: Any) -> Gate:
    """Return the gate of all these jobs."""
    chosen: dict[str, Any] = {
        "scope": "orders",
        "key": Fields("id"),
        "occurrence": SourcePosition("file", "pos"),
        "ledger": ledger(folder),
        "membership": Bloom(capacity=1000, error_rate=0.01),
        "batch": Batch(rows=100, linger=timedelta(milliseconds=200)),
        "shards": 4,
        "rejected": "output",
    }
    return Gate(**(chosen | more))


def table(folder: Path) -> SQLiteTable:
    """Return the sink in the ledger's own transaction."""
    create_table(folder / "ledger.db")
    return SQLiteTable(ledger(folder), "orders")


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_job_that_crashes_and_is_restored_writes_each_order_once(tmp_path: Path, mode: str) -> None:
    """Lost 0, twice 0; and over committed outputs each delivery has exactly one outcome."""
    write_lines(tmp_path / "in.jsonl", records=RECORDS, resent=RESENT, bad=BAD)
    environment = mini_cluster(tmp_path, RESTARTS | {"python.execution-mode": mode}, parallelism=2)
    stream = lines(environment, tmp_path / "in.jsonl", CrashOnce(tmp_path, at=RECORDS // 2))
    sink = OnceSink(
        gate(tmp_path, rejected="raise"),
        table(tmp_path),
        rejected=files(tmp_path / "rejected"),
        told=True,
        one_machine=True,
    )
    stream.sink_to(sink)
    assert isinstance(sink.results, OnceStreams)
    told = [sink.results.written, sink.results.duplicates]
    for number, outcomes in enumerate(told):
        outcomes.map(tell, Types.STRING()).sink_to(files(tmp_path / f"told{number}"))
    environment.execute()
    assert (tmp_path / "crashed").exists()
    assert Counter(table_ids(tmp_path / "ledger.db")) == Counter(range(DISTINCT))
    outcomes_told = Counter(
        line.rsplit(" ", 2)[0] for number in range(2) for line in committed_lines(tmp_path / f"told{number}")
    )
    assert outcomes_told == {"Written": DISTINCT, "Duplicate": RESENT}
    rejected = [json.loads(line) for line in committed_lines(tmp_path / "rejected")]
    assert [each["record"] for each in rejected] == ["{}"] * BAD


def test_the_gate_before_a_two_phase_sink_of_flink(tmp_path: Path) -> None:
    """After a crash the committed files hold each order once, as the record came in; duplicates are reachable."""
    write_lines(tmp_path / "in.jsonl", records=RECORDS, resent=RESENT, bad=BAD)
    environment = mini_cluster(tmp_path, RESTARTS, parallelism=2)
    stream = lines(environment, tmp_path / "in.jsonl", CrashOnce(tmp_path, at=RECORDS // 2))
    sink = OnceSink(gate(tmp_path), files(tmp_path / "out"), told=True, one_machine=True)
    stream.sink_to(sink)
    assert isinstance(sink.results, FilteredStreams)
    sink.results.duplicates.map(tell, Types.STRING()).sink_to(files(tmp_path / "duplicates"))
    environment.execute()
    assert (tmp_path / "crashed").exists()
    assert Counter(json.loads(line)["id"] for line in committed_lines(tmp_path / "out")) == Counter(range(DISTINCT))
    assert len(committed_lines(tmp_path / "duplicates")) == RESENT


def test_ones_own_sink_with_a_gate_without_one_and_stamps(tmp_path: Path) -> None:
    """`RichSinkFunction` has its life cycle in both uses; behind the gate it gets each order once, with a key."""
    write_lines(tmp_path / "in.jsonl", records=200, resent=50)
    environment = mini_cluster(tmp_path)
    stream = lines(environment, tmp_path / "in.jsonl")
    stream.sink_to(Appending(tmp_path / "plain"))
    stamped = stamp(stream, name="orders", lane=lane_of, lanes=4)
    stamped_gate = gate(tmp_path, occurrence=ByStamp(), on_replay="write")
    stamped.sink_to(OnceSink(stamped_gate, Appending(tmp_path / "once"), told=True))
    passed = drop_duplicates(stream, gate(tmp_path, scope="filtered"))
    assert passed.passed.get_type() == stream.get_type()
    ungated = write_once(
        passed.passed, gate(tmp_path, scope="behind", on_replay="write"), Appending(tmp_path / "behind")
    )
    ungated.written.map(tell, Types.STRING()).sink_to(files(tmp_path / "told"))
    environment.execute()
    plain, once, behind = ((tmp_path / name).read_text().splitlines() for name in ("plain", "once", "behind"))
    assert plain[0] == once[0] == "open"
    assert plain[-1] == once[-1] == "close"
    assert sorted(plain[1:-1]) == sorted(f"0 {pos % 150}" for pos in range(200))
    assert sorted(once[1:-1]) == sorted(behind[1:-1]) == sorted(f"16 {number}" for number in range(150))
    assert len(committed_lines(tmp_path / "told")) == 150
