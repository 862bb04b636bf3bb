"""JSON lines with positions: no line is lost or doubled, wherever a file is split, and every offset is true."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam", reason="Beam is not installed here")

from dataclasses import replace

import apache_beam as beam
from apache_beam.io.source_test_utils import (
    assert_sources_equal_reference_source,
    assert_split_at_fraction_exhaustive,
    read_from_source,
)
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from oncesink.connectors.errors import Rejected
from oncesink.connectors.memory import forget_all
from oncesink.transforms import Fields, SourcePosition
from oncesink.transforms.beam import ReadJsonLines, UnreadableLine, WriteOnce

from tests.engines.beam_world import GATHERED, forget_beam, gather
from tests.engines.engine_contract import GATE, TABLE, effects, ids


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    forget_all()
    yield from forget_beam()
    forget_all()


def source_of(pattern: Path, **options: Any) -> Any:
    """Return the source behind the transform, which can be split as a runner splits it."""
    return ReadJsonLines(str(pattern), **options)._source


def read(pattern: Path, *, bundle_bytes: int | None = None, **options: Any) -> list[Any]:
    """Read all bundles of a source, in order."""
    source = source_of(pattern, **options)
    if bundle_bytes is None:
        return list(read_from_source(source))
    bundles = [(each.source, each.start_position, each.stop_position) for each in source.split(bundle_bytes)]
    return [record for bundle in bundles for record in read_from_source(*bundle)]


def written(folder: Path, data: bytes, name: str = "in.jsonl") -> Path:
    """Write a file."""
    path = folder / name
    path.write_bytes(data)
    return path


def line_at(path: Path, offset: int) -> bytes:
    """Return the line that begins at a byte."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.readline()


def test_offsets_are_those_of_the_first_byte(tmp_path: Path) -> None:
    """Who seeks there reads that line: also after long text, other line ends and empty lines."""
    lines = [
        b'{"id": 1, "text": "\xc3\xa4\xe2\x82\xac"}\n',
        b"\r\n",
        b'{"id": 2}\r\n',
        b"  \n",
        b'{"id": 3}\n',
        b'{"id": 4}',
    ]
    path = written(tmp_path, b"".join(lines))
    records = read(path)
    assert [record["id"] for record in records] == [1, 2, 3, 4]
    for record in records:
        assert record["_file"] == str(path)
        assert json.loads(line_at(path, record["_offset"]))["id"] == record["id"]
        assert record["_offset"] == 0 or path.read_bytes()[record["_offset"] - 1 : record["_offset"]] == b"\n"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (b"\n\n\r\n", []),
        (b'{"id": 1}', [(0, 1)]),
        (b'{"id": 1}\n', [(0, 1)]),
        (b'{"id": 1}\r\n{"id": 2}', [(0, 1), (11, 2)]),
        (b'\n\n{"id": 1}\n\n', [(2, 1)]),
        (b'\xef\xbb\xbf{"id": 1}\n{"id": 2}\n', [(0, 1), (13, 2)]),
        (b'{"id": 1}\r', [(0, 1)]),
    ],
    ids=["empty", "empty lines", "no last newline", "one line", "CRLF", "among empty lines", "BOM", "CR at the end"],
)
@pytest.mark.parametrize("bundle_bytes", [None, 1, 5])
def test_every_form_of_file_is_read(
    tmp_path: Path, data: bytes, found: list[tuple[int, int]], bundle_bytes: int | None
) -> None:
    """Lines end with LF or CRLF, the last one also without; empty ones are skipped."""
    path = written(tmp_path, data)
    assert [(each["_offset"], each["id"]) for each in read(path, bundle_bytes=bundle_bytes)] == found


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LINE = st.builds(lambda text: json.dumps({"text": text}, ensure_ascii=False).encode(), TEXT)
LINES = st.lists(st.one_of(LINE, st.just(b""), st.just(b"no json")), max_size=12)


@given(lines=LINES, end=st.sampled_from([b"\n", b"\r\n"]), last=st.booleans(), bundle_bytes=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_no_line_is_lost_or_doubled_wherever_a_file_is_split(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], end: bytes, last: bool, bundle_bytes: int
) -> None:
    """Bundles of any size read, together and in order, what one reader of the whole file reads."""
    data = end.join(lines) + (end if last else b"")
    path = written(tmp_path_factory.getbasetemp(), data, "split.jsonl")
    whole = read(path)
    assert len(whole) == sum(1 for line in lines if line)
    assert read(path, bundle_bytes=bundle_bytes) == whole
    for record in whole:
        offset = record.offset if isinstance(record, UnreadableLine) else record["_offset"]
        text = line_at(path, offset).rstrip(b"\r\n")
        assert text == (record.line if isinstance(record, UnreadableLine) else line_of(record))


def line_of(record: dict[str, Any]) -> bytes:
    """Return the line that a record was made of."""
    return json.dumps({"text": record["text"]}, ensure_ascii=False).encode()


def test_a_running_reader_can_be_split_anywhere(tmp_path: Path) -> None:
    """Beam's own check: at every record and every fraction, the two parts are the whole."""
    path = written(tmp_path, b"".join(b'{"id": %d}\n' % number for number in range(8)))
    assert_split_at_fraction_exhaustive(source_of(path))
    splits = [(each.source, each.start_position, each.stop_position) for each in source_of(path).split(13)]
    assert len(splits) > 3
    assert_sources_equal_reference_source((source_of(path), None, None), splits)


def test_lines_that_cross_chunks_are_whole(tmp_path: Path) -> None:
    """Lines longer than what is read at once come whole, and the offsets behind them are true."""
    lines = [{"id": number, "text": "x" * (700_000 * (number % 3 + 1))} for number in range(4)]
    path = written(tmp_path, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    for bundle_bytes in (None, 500_000):
        records = read(path, bundle_bytes=bundle_bytes)
        assert [{"id": each["id"], "text": each["text"]} for each in records] == lines
        assert all(json.loads(line_at(path, each["_offset"]))["id"] == each["id"] for each in records)


def test_several_files_have_their_own_positions(tmp_path: Path) -> None:
    """The file is part of the position; a pattern that matches none is an error where it is written."""
    for name in ("a.jsonl", "b.jsonl"):
        written(tmp_path, b'{"id": 1}\n{"id": 2}\n', name)
    written(tmp_path, b"", "c.jsonl")
    found = {(Path(each["_file"]).name, each["_offset"]) for each in read(tmp_path / "*.jsonl")}
    assert found == {("a.jsonl", 0), ("a.jsonl", 10), ("b.jsonl", 0), ("b.jsonl", 10)}
    with pytest.raises(OSError, match="No files found"):
        ReadJsonLines(str(tmp_path / "none-*.jsonl"))


def test_compressed_files_count_decompressed_bytes(tmp_path: Path) -> None:
    """They are read whole, by one reader, to their last line."""
    lines = [b'{"id": %d}\n' % number for number in range(500)]
    path = written(tmp_path, gzip.compress(b"".join(lines)), "in.jsonl.gz")
    records = read(path, bundle_bytes=10)
    assert [each["id"] for each in records] == list(range(500))
    with gzip.open(path) as file:
        file.seek(records[321]["_offset"])
        assert json.loads(file.readline())["id"] == 321


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{broken", "not_json"),
        (b'{"id": "\xff"}', "not_json"),
        (b"[1, 2]", "wrong_type"),
        (b'{"id": "\\ud800"}', "not_unicode"),
        (b'{"id": 1, "_file": "mine"}', "wrong_type"),
        (b'{"id": "' + b"x" * 100 + b'"}', "too_large"),
        (b"[" * 50_000, "too_large"),
    ],
    ids=["broken", "not UTF-8", "a list", "a lone surrogate", "a taken field", "too long", "far too long"],
)
def test_a_line_that_cannot_be_read_travels_with_its_position(tmp_path: Path, line: bytes, reason: str) -> None:
    """Nothing stops, the lines around it are read, and whoever reads a field of it learns why."""
    path = written(tmp_path, b'{"id": 1}\n' + line + b'\n{"id": 2}\n')
    first, bad, last = read(path, max_line_bytes=64)
    assert (first["id"], last["id"]) == (1, 2)
    assert isinstance(bad, UnreadableLine)
    assert (bad.file, bad.offset, bad.line, bad.reason) == (str(path), 10, line[:64], reason)
    assert pickle.loads(pickle.dumps(bad)) == bad
    with pytest.raises(Rejected, match=reason):
        bad["id"]


def test_pairs_of_surrogates_are_text(tmp_path: Path) -> None:
    """Escaped in pairs they stand for one character, and are no error."""
    (record,) = read(written(tmp_path, b'{"id": "\\ud83d\\ude00"}\n'))
    assert record["id"] == "\U0001f600"


@pytest.mark.parametrize("length", [63, 64])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""], ids=["LF", "CRLF", "none"])
def test_the_longest_line_is_as_long_as_it_says(tmp_path: Path, length: int, end: bytes) -> None:
    """Its end does not count."""
    line = b'{"id": "%s"}' % (b"x" * (length - 10))
    assert len(line) == length
    (record,) = read(written(tmp_path, line + end), max_line_bytes=64)
    assert not isinstance(record, UnreadableLine)


def test_a_job_reads_writes_and_rejects(tmp_path: Path) -> None:
    """File and offset are the occurrence: a second run brings replays, a copy in another file a duplicate."""
    written(tmp_path, b'{"id": 1}\n{oops\n{"id": 2}\n', "a.jsonl")
    position = SourcePosition("files", "_file", "_offset")
    gate = replace(GATE, key=Fields("id"), occurrence=position)
    for expected in (False, True):
        GATHERED.clear()
        pipeline = beam.Pipeline(runner=FnApiRunner())
        gather(pipeline | ReadJsonLines(str(tmp_path / "*.jsonl")) | WriteOnce(gate, TABLE))
        pipeline.run().wait_until_finish()
        assert ids(GATHERED["written"]) == [1, 2]
        assert [each.replayed for each in GATHERED["written"]] == [expected] * 2
        (rejected,) = GATHERED["rejected"]
        assert (rejected.reason, rejected.record.line, rejected.record.offset) == ("not_json", b"{oops", 10)
    written(tmp_path, b'{"id": 2}\n', "b.jsonl")
    GATHERED.clear()
    pipeline = beam.Pipeline(runner=FnApiRunner())
    gather(pipeline | ReadJsonLines(str(tmp_path / "b.jsonl"), file_field="_file") | WriteOnce(gate, TABLE))
    pipeline.run().wait_until_finish()
    assert ids(GATHERED["duplicates"]) == [2]
    assert effects(TABLE) == [1, 2]
