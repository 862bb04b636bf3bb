"""JSON lines with positions: what Beam's own text reader does not give, and an occurrence needs."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import IO, Any, NoReturn

import apache_beam as beam
from apache_beam.coders import Coder, PickleCoder
from apache_beam.io.filebasedsource import FileBasedSource
from apache_beam.io.iobase import RangeTracker

from ..connectors.errors import Misconfigured, Reason, Rejected
from ..connectors.rows import decode_json

_CHUNK_BYTES = 1024 * 1024
_SHOWN_BYTES = 200


class UnreadableLine:
    """A line that is no JSON object, with its position.

    It travels like a record, and whoever reads a field of it gets `Rejected`.
    So it comes to the gate, which treats it as its `rejected` setting says. `line` has at most `max_line_bytes` bytes.
    """

    __slots__ = ("detail", "file", "line", "offset", "reason")

    def __init__(self, file: str, offset: int, line: bytes, reason: Reason, detail: str) -> None:
        self.file = file
        self.offset = offset
        self.line = line
        self.reason: Reason = reason
        self.detail = detail

    def as_dict(self) -> NoReturn:
        """Raise `Rejected`: there are no fields."""
        raise Rejected(self.reason, f"{self.file} at byte {self.offset}: {self.detail}")

    def __getitem__(self, name: str) -> NoReturn:
        self.as_dict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnreadableLine) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"UnreadableLine({self.file!r}, {self.offset}, {self.line[:_SHOWN_BYTES]!r}, {self.reason!r})"

    def _values(self) -> tuple[Any, ...]:
        return self.file, self.offset, self.line, self.reason, self.detail


class ReadJsonLines(beam.PTransform):
    """Read JSON objects, one a line, from files of any Beam file system, in parallel byte ranges.

    Each comes as a dict with two more fields, the file's path and the offset of the line's first byte, so that its
    occurrence is `SourcePosition("<label>", "_file", "_offset")`. Lines end with LF or CRLF, the last one also
    without; empty ones are skipped. A line that cannot be read, or that has such a field already, comes as an
    `UnreadableLine`. Compressed files are read whole, and their offsets count decompressed bytes. Raises `OSError`
    where no file matches.
    """

    def __init__(
        self, pattern: str, *, file_field: str = "_file", offset_field: str = "_offset", max_line_bytes: int = 16 << 20
    ) -> None:
        super().__init__()
        if not file_field or not offset_field or file_field == offset_field:
            raise Misconfigured(f"file_field={file_field!r} and offset_field={offset_field!r} are two names")
        if max_line_bytes < 1:
            raise Misconfigured(f"max_line_bytes={max_line_bytes} must be positive")
        self._pattern = pattern
        self._source = _JsonLinesSource(pattern, file_field, offset_field, max_line_bytes)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        return begin | "Read" >> beam.io.Read(self._source)

    def __repr__(self) -> str:
        return f"<ReadJsonLines {self._pattern!r}>"


class _JsonLinesSource(FileBasedSource):
    def __init__(self, pattern: str, file_field: str, offset_field: str, max_line_bytes: int) -> None:
        super().__init__(pattern)
        self._file_field = file_field
        self._offset_field = offset_field
        self._max_line_bytes = max_line_bytes

    def read_records(self, file_name: str, range_tracker: RangeTracker) -> Iterator[Any]:
        """Yield the lines that begin in the range."""
        start = range_tracker.start_position()
        with self.open_file(file_name) as file:
            # The range before this one reads the line that goes over the border, if one does: the byte before tells.
            found = lines(file, max(start - 1, 0), max_line_bytes=self._max_line_bytes)
            if start > 0:
                next(found, None)
            for offset, line, whole in found:
                if not range_tracker.try_claim(offset):
                    return
                if whole and (not line or line.isspace()):
                    continue
                yield self._record(file_name, offset, line, whole=whole)

    def default_output_coder(self) -> Coder:
        return PickleCoder()

    def _record(self, file: str, offset: int, line: bytes, *, whole: bool) -> Any:
        try:
            record = self._decode(line.removeprefix(BOM_UTF8) if offset == 0 else line, whole=whole)
        except Rejected as error:
            return UnreadableLine(file, offset, line, error.reason, error.detail)
        record[self._file_field] = file
        record[self._offset_field] = offset
        return record

    def _decode(self, line: bytes, *, whole: bool) -> dict[str, Any]:
        if not whole:
            raise Rejected("too_large", f"a line of more than max_line_bytes={self._max_line_bytes}")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Rejected("not_json", str(error)) from error
        record = dict(decode_json(text))
        if "\\u" in text:
            _refuse_surrogates(record)
        taken = [name for name in (self._file_field, self._offset_field) if name in record]
        if taken:
            raise Rejected("wrong_type", f"it has a field {taken[0]!r}, which holds positions: choose other names")
        return record


def lines(file: IO[bytes], start: int, *, max_line_bytes: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield, from a byte on, each line's offset, the line without its end, and whether it is whole.

    Of a longer line come its first `max_line_bytes` bytes.
    """
    if start > 0:
        file.seek(start)
    offset, head, length = start, b"", 0
    while chunk := file.read(_CHUNK_BYTES):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            length += len(part)
            yield offset, *_cut(head + part, length, max_line_bytes)
            offset += length + 1
            head, length = b"", 0
        # One byte more: it may be the CR of a line that is just short enough.
        head = (head + rest)[: max_line_bytes + 1]
        length += len(rest)
    if length:
        yield offset, *_cut(head, length, max_line_bytes)


def _cut(line: bytes, length: int, most: int) -> tuple[bytes, bool]:
    """Return a line of this length without its CR, not longer than `most`, and whether it is whole."""
    if length <= most + 1 and line.endswith(b"\r"):
        line, length = line[:-1], length - 1
    return line[:most], length <= most


def _refuse_surrogates(record: dict[str, Any]) -> None:
    """Refuse text that no coder can encode: it would end the job at the first step that is not fused with this one."""
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Rejected("not_unicode", "a lone surrogate") from error
