"""`stamp`: occurrences for records that have no position in their source.

It is the article's `checkpointId * numTasks + subtaskIndex` with numbers that survive replays and rescales.
The numbers live in keyed state, one counter a lane. They come back with a checkpoint, so a replay in the same order
gets the same ones; and a lane goes as a whole to whatever subtask it belongs to after a rescale, so none is given
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from pyflink.common import Types
from pyflink.datastream import DataStream, KeyedProcessFunction, ProcessFunction
from pyflink.datastream.state import ValueStateDescriptor

from ..connectors.errors import Misconfigured
from .flink_shards import shard_keys
from .keys import Stamped


def stamp(
    stream: DataStream,
    *,
    name: str,
    lane: Callable[[Any], int],
    lanes: int,
    incarnation: str | None = None,
    max_parallelism: int | None = None,
) -> DataStream:
    """Give each record an occurrence, `uuid_(n * lanes + lane)`; return a stream for a gate with `ByStamp()`.

    `lane` returns the number of the lane a record belongs to, from 0 to `lanes` - 1: something within which the order
    of records is the same in a replay, such as a source partition. `name` keeps the state of two such steps in one
    job apart.

    The uuid is drawn where the job is built, and travels with it: a job that restarts by itself gives the same numbers
    again, with a checkpoint and without one. Submitted anew it draws another one for each lane that had no record in
    the state it goes on from: that is why `drop_duplicates` refuses stamps, and why a stamp as a key wants an
    `incarnation`, a text that stands instead of the drawn uuid. It names what is read, as a source label does:
    `"orders@eu-1/3"`. Other input under the same text would get numbers that were given before.
    """
    groups = max_parallelism or max(stream.get_execution_environment().get_max_parallelism(), 0) or 128
    keys = shard_keys(lanes, groups)
    uid = f"oncesink-stamp-{name}"
    laned = (
        stream.process(LaneFunction(lane, lanes, keys), Types.PICKLED_BYTE_ARRAY())
        .name(f"{uid} lanes")
        .uid(f"{uid}-lanes")
    )
    stamped = laned.key_by(_key, Types.LONG()).process(StampFunction(lanes, incarnation), Types.PICKLED_BYTE_ARRAY())
    stamped.name(uid).uid(uid).set_max_parallelism(groups)
    return stamped


def _key(laned: tuple[int, int, Any]) -> int:
    return laned[0]


class LaneFunction(ProcessFunction):  # type: ignore[misc]
    """Find the lane of each record."""

    def __init__(self, lane: Callable[[Any], int], lanes: int, keys: tuple[int, ...]) -> None:
        self._lane = lane
        self._lanes = lanes
        self._keys = keys

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int, Any]]:
        lane = self._lane(value)
        if not 0 <= lane < self._lanes:
            raise Misconfigured(f"lane {lane} is not one of {self._lanes}: raise lanes=, which starts new numbers")
        yield self._keys[lane], lane, value


class StampFunction(KeyedProcessFunction):  # type: ignore[misc]
    """Number the records of each lane, under a uuid that is drawn where the job is built, or under a given text."""

    def __init__(self, lanes: int, incarnation: str | None = None) -> None:
        self._lanes = lanes
        self._incarnation = incarnation
        self._drawn = str(uuid4())

    def open(self, runtime_context: Any) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("oncesink-stamp", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: tuple[int, int, Any], ctx: Any) -> Iterator[Stamped]:
        _, lane, record = value
        # Every name that this lane ever counted under: a job that goes back to one of them must not begin it again.
        counted: dict[str, tuple[int, int]] = self._state.value() or {}
        name = self._name(counted)
        n, _ = counted.pop(name, (0, self._lanes))
        counted[name] = n + 1, self._lanes
        self._state.update(counted)
        yield Stamped(f"{name}_{n * self._lanes + lane}".encode(), record)

    def _name(self, counted: dict[str, tuple[int, int]]) -> str:
        """Return what to count under. The formula of other lanes would give numbers again, so they have other names."""
        if self._incarnation is not None:
            return f"{self._incarnation}/{self._lanes}"
        return next((name for name, (_, lanes) in reversed(counted.items()) if lanes == self._lanes), self._drawn)
