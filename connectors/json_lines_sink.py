"""A sink that appends JSON lines: where dead letters go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from .clock import Clock, SystemClock
from .contract import WRITTEN, Answer, LedgerSession, Scope, SinkKind, Write
from .errors import Misconfigured
from .json_lines import json_line
from .line_files import AppendedFile, LinePlace, NewObjects
from .wanted import check_durations


@dataclass(frozen=True, slots=True)
class JsonLinesSink:
    """Recipe of a sink that writes one JSON line a record.

    What JSON has no form for is written as `json_lines` says: no record is refused. `path` names a file on this
    machine that grows, each batch on disk before it counts as written; or it is any other URL that fsspec knows, and
    then each batch becomes a new object, named after it, the time and a random number: `s3://dead/orders.jsonl` gives
    `s3://dead/orders-20260131T120000Z-4f1c60a9d2b7e835.jsonl`. `timeout` bounds the wait for other writers of the
    file; how long a file system may take is a matter of its own settings.

    Delivery: at least once. A batch that failed half-way is taken out of the file again. As `rejected=` or `parked=`
    of a gate it gets a record again whenever the engine replays it.
    Parallelism: any number of sessions; processes on one machine take turns by a lock on the file. Several machines
    want a file each, or an object store: locks on network shares are not to be relied on.
    """

    path: str
    _: KW_ONLY
    timeout: timedelta = timedelta(seconds=20)
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_durations(self)
        if not self.path or self.path.endswith("/"):
            raise Misconfigured(f"JsonLinesSink needs the name of a file, not {self.path!r}")
        if self.timeout <= timedelta(0):
            raise Misconfigured(f"timeout={self.timeout} must be positive")
        parts = urlsplit(self.path)
        if self._is_remote and (parts.password or parts.query):
            shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
            raise Misconfigured(f"{shown}: credentials of a file system belong into its own settings, not into the URL")

    @property
    def _is_remote(self) -> bool:
        return "://" in self.path and not self.path.startswith(("file://", "local://"))

    @property
    def kind(self) -> SinkKind:
        return SinkKind.EXTERNAL

    @property
    def target(self) -> str:
        return f"JSON lines in {self.path}"

    @property
    def atomic(self) -> bool:
        return False

    @property
    def can_probe(self) -> bool:
        return False

    @property
    def remembers(self) -> timedelta | None:
        return None

    @property
    def tells_occurrence(self) -> bool:
        return False

    def open(self, scope: Scope, ledger: LedgerSession | None) -> JsonLinesSession:
        """Prove that the place can be written to. Raises `Misconfigured` or `Unavailable`."""
        if self._is_remote:
            return JsonLinesSession(NewObjects(self.path))
        path = Path(self.path.removeprefix("file://").removeprefix("local://"))
        return JsonLinesSession(AppendedFile(path, self.clock))


class JsonLinesSession:
    """An open place for lines. The file itself is opened for each batch: it may be moved away at any time."""

    store_id: bytes | None = None

    def __init__(self, place: LinePlace) -> None:
        self._place = place

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        self._place.put(b"".join([json_line(each.record) for each in writes]), timeout_seconds)
        return [WRITTEN] * len(writes)

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        raise Misconfigured("a file of lines cannot be asked for one of them")

    def close(self) -> None:
        """Nothing is held."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._place!r}>"
