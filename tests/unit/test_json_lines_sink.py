"""Dead letters: every record becomes a line, and every line stays whole."""

import base64
import datetime as dt
import fcntl
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncesink.connectors.clock import ManualClock
from oncesink.connectors.contract import WRITTEN, Scope, Sink, SinkKind, Use, Write
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.json_lines import json_line
from oncesink.connectors.json_lines_sink import JsonLinesSink
from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.memory_sinks import MemoryTable
from oncesink.transforms import Fields, Gate, OnceWriter, SourcePosition


class Point(NamedTuple):
    """A record with named fields."""

    x: int
    y: float


@dataclass
class Order:
    """A record with a nested one."""

    number: int
    at: Point


class Nasty:
    """A record that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Holder(NamedTuple):
    """A record with such a thing inside."""

    held: object


class NastyMapping(Mapping[str, int]):
    """A mapping that breaks when it is read."""

    def __getitem__(self, key: str) -> int:
        raise OSError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def write(sink: JsonLinesSink, *records: Any) -> Any:
    """Write the records as a gate's destination does: without a ledger."""
    session = sink.open(Scope(name="test", use=Use.WRITE), None)
    try:
        return session.write([Write(each, bytes(16), None) for each in records], timeout_seconds=1.0)
    finally:
        session.close()


def lines(path: Path) -> list[Any]:
    """Parse the file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("record", "plain"),
    [
        ({"a": 1, "b": [1.5, None, True, "x"]}, {"a": 1, "b": [1.5, None, True, "x"]}),
        (b"\xff\x00", {"base64": base64.b64encode(b"\xff\x00").decode()}),
        (bytearray(b"ab"), {"base64": "YWI="}),
        ({"v": float("nan")}, {"v": {"float": "nan"}}),
        ({"v": float("-inf")}, {"v": {"float": "-inf"}}),
        ({"t": "a\ud800b\n\u2028"}, {"t": "a\ud800b\n\u2028"}),
        (dt.datetime(2026, 1, 31, 12, tzinfo=dt.timezone.utc), {"datetime": "2026-01-31T12:00:00+00:00"}),
        (dt.date(2026, 1, 31), {"date": "2026-01-31"}),
        (Decimal("1.10"), {"decimal": "1.10"}),
        (uuid.UUID(int=5), {"uuid": "00000000-0000-0000-0000-000000000005"}),
        ({1: "a", (2, 3): "b"}, {"pairs": [[1, "a"], [[2, 3], "b"]]}),
        ({"s": {2, 1}}, {"s": {"set": [1, 2]}}),
        (Point(1, 2.0), {"x": 1, "y": 2.0}),
        (Order(7, Point(1, 2.0)), {"number": 7, "at": {"x": 1, "y": 2.0}}),
        (2**4000, {"integer": hex(2**4000)}),
    ],
)
def test_what_json_has_no_form_for_can_be_read_back(record: Any, plain: Any) -> None:
    """The line says of what kind the value was, and holds all of it."""
    assert json.loads(json_line(record)) == plain


def endless() -> dict[str, Any]:
    """Give a record that contains itself."""
    record: dict[str, Any] = {}
    record["self"] = record
    return record


def deep() -> list[Any]:
    """Give a record nested deeper than any stack."""
    record: list[Any] = []
    for _ in range(100_000):
        record = [record]
    return record


@pytest.mark.parametrize(
    "record", [endless(), Nasty(), {"a": Nasty(), "b": 1}, NastyMapping(), Holder(Nasty()), object()]
)
def test_no_record_is_refused(record: Any) -> None:
    """A dead letter that cannot be written would stop the job that it was to save."""
    assert json_line(record).count(b"\n") == 1
    json.loads(json_line(record))


def test_a_record_nested_without_end_is_cut() -> None:
    """The depth is bounded, not the stack."""
    record = deep()
    line = json_line(record)
    assert 60 < line.count(b"[") < 70
    assert line.count(b'{"repr":') == 1
    while record:  # the interpreter itself would overflow when it frees the list at once
        record = record.pop()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner),
    max_leaves=20,
)


@given(anything)
def test_every_value_becomes_one_line_of_ascii(record: Any) -> None:
    """Whatever is in it, the line ends where it should and parses."""
    line = json_line(record)
    assert line.isascii()
    assert line.index(b"\n") == len(line) - 1
    json.loads(line)


def test_lines_are_appended_batch_after_batch(tmp_path: Path) -> None:
    """What was there stays."""
    sink = JsonLinesSink(str(tmp_path / "dead.jsonl"))
    assert list(write(sink, {"a": 1}, b"\xff")) == [WRITTEN, WRITTEN]
    write(replace(sink, path=f"file://{sink.path}"), {"b": 2})
    assert lines(tmp_path / "dead.jsonl") == [{"a": 1}, {"base64": "/w=="}, {"b": 2}]


WRITER = """
import sys
from oncesink.connectors import JsonLinesSink, Scope, Use, Write

path, writer = sys.argv[1], int(sys.argv[2])
session = JsonLinesSink(path).open(Scope(name="test", use=Use.WRITE), None)
for number in range(40):
    records = [{"writer": writer, "number": number, "text": "x" * (997 * each)} for each in range(20)]
    session.write([Write(each, bytes(16), None) for each in records], timeout_seconds=60.0)
"""


def test_processes_that_write_at_once_do_not_tear_lines(tmp_path: Path) -> None:
    """Four processes share one file: every batch stands together and whole."""
    path = tmp_path / "dead.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)]) for number in range(4)]
    assert [each.wait(timeout=120) for each in writers] == [0, 0, 0, 0]
    found = [(each["writer"], each["number"]) for each in lines(path)]
    assert len(found) == 4 * 40 * 20
    batches = found[::20]
    assert found == [each for each in batches for _ in range(20)]
    assert sorted(batches) == [(writer, number) for writer in range(4) for number in range(40)]


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    """A writer without manners, or a power cut, left half a line: what follows can be read."""
    path = tmp_path / "dead.jsonl"
    path.write_bytes(b'{"a": 1}\n{"torn": "hal')
    write(JsonLinesSink(str(path)), {"b": 2})
    assert path.read_bytes().splitlines()[-1] == b'{"b":2}'


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_batch_that_does_not_fit_is_taken_back_whole(tmp_path: Path) -> None:
    """A disk that is full in the middle of a batch: no half line stays, and the batch may be sent again."""
    sink = JsonLinesSink(str(tmp_path / "dead.jsonl"))
    write(sink, {"a": 1})
    with files_of_at_most(10_000), pytest.raises(Unavailable, match=r"dead\.jsonl"):
        write(sink, {"b": "x" * 8_000}, {"c": "x" * 8_000})
    assert lines(tmp_path / "dead.jsonl") == [{"a": 1}]


def test_a_file_that_another_writer_keeps_locked_is_unavailable(tmp_path: Path) -> None:
    """Waiting is bounded by the call's time, and nothing was written."""
    clock = ManualClock()
    sink = JsonLinesSink(str(tmp_path / "dead.jsonl"), clock=clock)
    descriptor = os.open(sink.path, os.O_WRONLY | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(Unavailable, match="locked"):
            write(sink, {"a": 1})
    finally:
        os.close(descriptor)
    assert clock.now >= 1.0
    assert lines(tmp_path / "dead.jsonl") == []


def test_another_file_system_gets_one_object_a_batch() -> None:
    """Object stores cannot append: names are unique, and tell where they belong."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    sink = JsonLinesSink("memory://dead/v1.0/orders.jsonl")
    write(sink, {"a": 1}, {"a": 2})
    write(sink, {"a": 3})
    names = memory.ls("/dead/v1.0", detail=False)
    assert len(names) == 2
    assert all(name.startswith("/dead/v1.0/orders-") and name.endswith(".jsonl") for name in names)
    held = sorted(tuple(json.loads(line)["a"] for line in memory.cat(name).splitlines()) for name in names)
    assert held == [(1, 2), (3,)]


def test_without_fsspec_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local path works without it."""
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(Misconfigured, match=r"oncesink\[files\]"):
        write(JsonLinesSink("s3://dead/orders.jsonl"), {"a": 1})


def test_a_place_that_cannot_be_written_to_is_an_error_at_start(tmp_path: Path) -> None:
    """Not at the first dead letter, hours later."""
    with pytest.raises(Misconfigured, match="make its folder"):
        write(JsonLinesSink(str(tmp_path / "missing" / "dead.jsonl")))
    with pytest.raises(Misconfigured, match="unheard-of"):
        write(JsonLinesSink("unheard-of://dead/orders.jsonl"))


def test_bad_settings_are_refused_without_showing_a_password() -> None:
    """Credentials would show with the target, and travel in pickles."""
    for path in ("", "folder/"):
        with pytest.raises(Misconfigured, match="name of a file"):
            JsonLinesSink(path)
    with pytest.raises(Misconfigured, match="timeout"):
        JsonLinesSink("a", timeout=timedelta(0))
    with pytest.raises(Misconfigured) as caught:
        JsonLinesSink("ftp://me:s3cret@host/dead.jsonl?token=s3cret")
    assert "s3cret" not in str(caught.value)
    assert "ftp://host/dead.jsonl" in str(caught.value)


def test_it_is_a_sink_and_survives_pickling(tmp_path: Path) -> None:
    """Workers get the recipe pickled."""
    sink = JsonLinesSink(str(tmp_path / "dead.jsonl"))
    assert isinstance(sink, Sink)
    assert sink.kind is SinkKind.EXTERNAL
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_a_gate_hands_its_rejected_records_over(tmp_path: Path) -> None:
    """Each line holds the record, the reason and what was wrong; the good records are written."""
    ledger = MemoryLedger("dead letters")
    gate = Gate(
        scope="orders",
        key=Fields("id"),
        occurrence=SourcePosition("here", "offset"),
        ledger=ledger,
        rejected=JsonLinesSink(str(tmp_path / "dead.jsonl")),
    )
    records = [{"id": 1, "offset": 1}, {"offset": 2, "v": float("nan")}, b"\xff\xfe", {"id": 3, "offset": 3}]
    with OnceWriter(gate, MemoryTable(ledger)) as writer:
        results = writer.write(records)
    assert (len(results.written), len(results.rejected)) == (2, 2)
    first, second = lines(tmp_path / "dead.jsonl")
    assert (first["reason"], first["record"]) == ("no_key", {"offset": 2, "v": {"float": "nan"}})
    assert (second["reason"], second["record"]) == ("not_json", {"base64": "//4="})
    assert second["detail"]
