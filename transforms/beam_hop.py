"""The hop: records are prepared, keyed by shard, and travel as bytes, so that equal keys meet in one worker."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.transforms.window import BoundedWindow, GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, WindowedValue

from ..connectors.contract import Claim, Sink
from .digest import DIGEST_BYTES
from .gate import Gate, drop_scope, write_scope
from .prepare import Item, Preparer
from .results import Refused

Parcel = tuple[int, bytes]
"""A shard, and what of a record crosses the hop, pickled: a coder for `Any` fails on text with lone surrogates."""

_GLOBAL = (GlobalWindow(),)
_new = tuple.__new__
"""Makes a NamedTuple three times as fast as its own class."""


def shard_of(digest: bytes, shards: int) -> int:
    """Return the shard of a key."""
    return int.from_bytes(digest[:4], "big") % shards


def shards_of(digests: Sequence[bytes], shards: int) -> npt.NDArray[np.uint32]:
    """Return what `shard_of` returns, for many keys."""
    return np.frombuffer(b"".join(digests), dtype=">u4")[:: DIGEST_BYTES // 4] % np.uint32(shards)


class ShardFn(beam.DoFn):
    """Prepare records and key them by shard, for input with default windowing.

    Those that the gate must refuse go over the hop as well: they are judged once the rest of their batch is finished.
    """

    def __init__(self, gate: Gate, sink: Sink | None = None) -> None:
        super().__init__()
        self._prepare = Preparer(gate, drop_scope(gate) if sink is None else write_scope(gate, sink))
        self._shards = gate.shards
        self._refused = 0

    def process(self, record: Any) -> Iterable[Parcel]:
        """Return the record's parcel; its timestamp stays."""
        return (self.pack(record, None),)

    def pack(self, record: Any, place: tuple[BoundedWindow, PaneInfo] | None) -> Parcel:
        """Return the shard, and the pickled item or refusal."""
        found = self._prepare(record)
        if isinstance(found, Refused):
            # Records without a key are spread, so that many of them do not make one shard slow.
            self._refused += 1
            return self._refused % self._shards, pickle.dumps((found, None, None, None, 0, place), 5)
        bare, (digest, occurrence, payload_hash), size, _ = found
        parcel = pickle.dumps((bare, digest, occurrence, payload_hash, size, place), 5)
        return shard_of(digest, self._shards), parcel


class WindowedShardFn(ShardFn):
    """The same for any other windowing: state is per window, so window and pane travel inside, through the global one."""

    def process(  # type: ignore[override]
        self,
        record: Any,
        timestamp: Timestamp = beam.DoFn.TimestampParam,  # type: ignore[assignment]
        window: BoundedWindow = beam.DoFn.WindowParam,  # type: ignore[assignment]
        pane: PaneInfo = beam.DoFn.PaneInfoParam,  # type: ignore[assignment]
    ) -> Iterable[WindowedValue]:
        """Return the record's parcel in the global window, at the record's time."""
        return (WindowedValue(self.pack(record, (window, pane)), timestamp, _GLOBAL),)


def unpack(parcel: bytes, where: WindowedValue) -> tuple[Item, Refused | None]:
    """Return the item; its context is where the record stood, so that outcomes can stand there too.

    `where` is where the parcel stands. With a refusal comes an item that nobody may ask for.
    """
    record, digest, occurrence, payload_hash, size, place = pickle.loads(parcel)  # noqa: S301 - written by `pack`
    if place is not None:
        where = WindowedValue(None, where.timestamp, (place[0],), place[1])
    item = _new(Item, (record, _new(Claim, (digest, occurrence, payload_hash)), size, where))
    return (item, None) if digest is not None else (item, record)
