"""The streams behind a gate: the main one, and a side output for each other kind of outcome.

A side output that nobody consumes lands in the main output as a pair, in silence: each gets a discarding sink at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyflink.common import Types
from pyflink.datastream import DataStream, OutputTag
from pyflink.datastream.connectors.base import Sink

from .results import Results

DISCARDING_SINK = "org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink"


class Outputs:
    """What a gate function gives out, and where to. Travels to the workers.

    `told=False` keeps back what nobody is going to read: what was written, and duplicates. To pickle them and take them
    through Java costs as much as to write them.
    """

    def __init__(self, *, filters: bool, told: bool = True) -> None:
        self._filters = filters
        self._told = told
        kinds = [*(["duplicates"] if told else []), "rejected", *([] if filters else ["parked"])]
        self.tags = {kind: OutputTag(kind, Types.PICKLED_BYTE_ARRAY()) for kind in kinds}

    def of(self, results: Results) -> Iterator[Any]:
        """Yield what was written, or the bare records that passed, then the rest under its tags."""
        if self._filters:
            yield from [each.record for each in results.passed]
        elif self._told:
            yield from results.written
        for kind, tag in self.tags.items():
            for outcome in getattr(results, kind):
                yield tag, outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class OnceStreams:
    """What came out of `write_once`: streams of `Written`, `Duplicate`, `Refused` and `Parked`, pickled."""

    written: DataStream
    duplicates: DataStream
    rejected: DataStream
    parked: DataStream


@dataclass(frozen=True, kw_only=True, slots=True)
class FilteredStreams:
    """What came out of `drop_duplicates`: records of the type they came in; `Duplicate` and `Refused`, pickled."""

    passed: DataStream
    duplicates: DataStream
    rejected: DataStream


def side_outputs(main: DataStream, outputs: Outputs, uid: str) -> dict[str, DataStream]:
    """Return the side outputs by kind, each with a consumer."""
    found = {}
    for kind, tag in outputs.tags.items():
        # Not `get_side_output`: it puts a Python step behind each output, also where nobody wants to see it.
        raw = DataStream(main._j_data_stream.getSideOutput(tag.get_java_output_tag()))  # noqa: SLF001
        raw.sink_to(discarding()).name(f"{uid} {kind}").uid(f"{uid}-{kind}")
        found[kind] = raw
    return found


def discarding() -> Sink:
    """Return a sink that takes everything and keeps nothing."""
    return Sink(DISCARDING_SINK)
