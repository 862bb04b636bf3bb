"""The hop: records are prepared, keyed by shard, and travel in parcels, so that equal keys meet in one worker.

What Beam does for an element costs more than all that the gate does for a record, so the records of a shard that come
close together cross the hop as one element. Each carries along where it stood in event time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import BoundedWindow, GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, WindowedValue

from ..connectors.contract import Claim, Sink
from .gate import Gate, drop_scope, write_scope
from .numbers import shard_rule
from .prepare import Item, Preparer
from .results import Refused

Parcel = tuple[int, bytes]
"""A shard, and records of it, pickled: a coder for `Any` fails on text with lone surrogates."""

GATHERED = 1000
"""How many records a bundle gathers, at most, before they are put into parcels."""

_GLOBAL = (GlobalWindow(),)
_new = tuple.__new__
"""Makes a NamedTuple three times as fast as its own class."""

Place = tuple[Timestamp, tuple[BoundedWindow, ...], PaneInfo]
"""Where a record stood in event time."""


class Unpacked(NamedTuple):
    """What a parcel held. The context of each item is a value at the record's place, to make outputs from."""

    items: list[Item]
    refused: list[tuple[Item, Refused]]
    """With each refusal an item that nobody may ask for: it knows the place."""


class ShardFn(beam.DoFn):
    """Prepare records and key them by shard, for input with default windowing.

    A bundle's last ones leave in `finish_bundle`.

    Those that the gate must refuse go over the hop as well: they are judged once the rest of their batch is finished.
    Parcels stand in the global window, each at the time of its earliest record: the watermark must not pass it, or
    outcomes would be late.
    """

    def __init__(self, gate: Gate, sink: Sink | None = None) -> None:
        super().__init__()
        self._prepare = Preparer(gate, drop_scope(gate) if sink is None else write_scope(gate, sink))
        self._shards = gate.shards
        self._shard_of = shard_rule(gate.membership, gate.shards)
        self._gathered = min(GATHERED, gate.batch.rows)
        self._bytes = gate.batch.bytes
        self._turn = 0

    def start_bundle(self) -> None:
        """Begin without records."""
        self._records: list[Any] = []
        self._values: list[WindowedValue] = []

    def process(
        self,
        record: Any,
        where: WindowedValue = beam.DoFn.WindowedValueParam,
    ) -> Iterable[WindowedValue]:
        """Gather the record; return parcels once there are enough."""
        return self.gather(record, where)

    def gather(self, record: Any, where: WindowedValue) -> Iterable[WindowedValue]:
        """Do what `process` does."""
        self._records.append(record)
        self._values.append(where)
        return self._parcels() if len(self._records) >= self._gathered else ()

    def finish_bundle(self) -> Iterable[WindowedValue]:
        """Return what is left, in parcels."""
        return self._parcels()

    def _parcels(self) -> list[WindowedValue]:
        records, values = self._records, self._values
        self.start_bundle()
        loads: dict[int, list[tuple[Item | Refused, WindowedValue]]] = {}
        for found, value in zip(self._prepare.batch(records), values, strict=True):
            loads.setdefault(self._shard(found), []).append((found, value))
        return [
            WindowedValue((shard, pack(part)), min([value.timestamp for _, value in part]), _GLOBAL)
            for shard, load in loads.items()
            for part in self._parts(load)
        ]

    def _shard(self, found: Item | Refused) -> int:
        if type(found) is Item:
            return self._shard_of(found.record, found.claim.digest)
        # Records without a key are spread, so that many of them do not make one shard slow.
        self._turn += 1
        return self._turn % self._shards

    def _parts(
        self, load: list[tuple[Item | Refused, WindowedValue]]
    ) -> Iterator[list[tuple[Item | Refused, WindowedValue]]]:
        """Cut by bytes: no element of the hop is larger than a batch."""
        begin, size = 0, 0
        for index, (found, _) in enumerate(load):
            more = found.size if type(found) is Item else 0
            if index > begin and size + more > self._bytes:
                yield load[begin:index]
                begin, size = index, 0
            size += more
        yield load[begin:]


class WindowedShardFn(ShardFn):
    """The same for any other windowing.

    Beam repeats what comes out of an element for each of its windows, so a record comes here once for each: such copies
    are one delivery, and each gets the answer.
    """

    def process(
        self,
        record: Any,
        where: WindowedValue = beam.DoFn.WindowedValueParam,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterable[WindowedValue]:
        """Gather the record in one of its windows; return parcels once there are enough."""
        return self.gather(record, WindowedValue(None, where.timestamp, (window,), where.pane_info))


def pack(load: Sequence[tuple[Item | Refused, WindowedValue]]) -> bytes:
    """Return records as bytes. Places that many of them share are kept once."""
    places: dict[Place, int] = {}
    rows: list[tuple[Any, ...]] = []
    for found, value in load:
        place = places.setdefault((value.timestamp, tuple(value.windows), value.pane_info), len(places))
        if type(found) is Item:
            record, (digest, occurrence, payload_hash, _), size, _ = found
            rows.append((record, digest, occurrence, payload_hash, size, place))
        else:
            rows.append((found, None, None, None, 0, place))
    return pickle.dumps((list(places), rows), 5)


def unpack(parcel: bytes) -> Unpacked:
    """Return what `pack` was given."""
    places, rows = pickle.loads(parcel)  # noqa: S301 - written by `pack`
    values = [WindowedValue(None, timestamp, windows, pane) for timestamp, windows, pane in places]
    found = Unpacked([], [])
    for record, digest, occurrence, payload_hash, size, place in rows:
        item = _new(Item, (record, _new(Claim, (digest, occurrence, payload_hash, None)), size, values[place]))
        if digest is None:
            found.refused.append((item, record))
        else:
            found.items.append(item)
    return found


def older_than(items: Iterable[Item], micros: int) -> int:
    """Count the items whose event time is known and before a time, in microseconds since 1970."""
    times = [item.context.timestamp.micros for item in items]
    unknown = MIN_TIMESTAMP.micros
    return sum([unknown < each < micros for each in times])
