"""Beam: writes that happen once, and a filter that drops duplicates, as transforms with named outputs.

    lines = pipeline | ReadJsonLines("gs://bucket/orders-*.jsonl")
    once = lines | WriteOnce(gate, sink)
    once.duplicates | ...

`Delivery:` what the gate promises (`docs/guarantees.md`), whatever bundles the runner repeats. When a bundle fails,
nothing of it is committed, and its replay brings what was written on `written` again, marked replayed.
`Parallelism:` up to `gate.shards` workers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.window import GlobalWindows

from ..connectors.contract import Sink
from ..connectors.errors import Misconfigured
from ..connectors.memory import MemoryLedger
from .beam_gate import NAMESPACE, GateFn
from .beam_hop import ShardFn, WindowedShardFn
from .beam_source import ReadJsonLines, UnreadableLine
from .gate import Gate, describe_guarantee, drop_rules, write_rules
from .keys import Stamped

__all__ = [
    "NAMESPACE",
    "DropDuplicates",
    "GateFn",
    "Outputs",
    "ReadJsonLines",
    "ShardFn",
    "Stamp",
    "StampFn",
    "UnreadableLine",
    "WindowedShardFn",
    "WriteOnce",
]

_LOCAL_RUNNERS = frozenset(
    {
        "BundleBasedDirectRunner",
        "DirectRunner",
        "FnApiRunner",
        "InteractiveRunner",
        "PrismRunner",
        "SwitchingDirectRunner",
    }
)


class Outputs(dict[str, Any]):
    """PCollections by name, which can be read as attributes: `once.written`, `once["written"]`."""

    def __getattr__(self, name: str) -> beam.PCollection[Any]:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no output {name!r}: there are {', '.join(self)}") from None


class _Gated(beam.PTransform):
    """Shard, hop, gate; the outputs have the windowing of the input."""

    _tags: Sequence[str]

    def __init__(self, gate: Gate, sink: Sink | None) -> None:
        super().__init__()
        self._gate = gate
        self._sink = sink

    def expand(self, records: beam.PCollection[Any]) -> Outputs:
        _refuse_unshared(self._gate, records.pipeline)
        windowing = records.windowing
        plain = windowing.is_default()
        shard = (ShardFn if plain else WindowedShardFn)(self._gate, self._sink)
        keyed = records | "KeyByShard" >> beam.ParDo(shard).with_output_types(tuple[int, bytes])
        main, *others = self._tags
        gated = beam.ParDo(GateFn(self._gate, self._sink)).with_outputs(*others, main=main)
        if plain:
            found = keyed | "Gate" >> gated
        else:
            # As Beam's own Reshuffle does: elements say where they belong, and no public call sets it otherwise.
            keyed._windowing = Windowing(GlobalWindows())  # noqa: SLF001
            found = keyed | "Gate" >> gated
        outputs = Outputs({tag: found[tag] for tag in self._tags})
        for each in outputs.values():
            each._windowing = windowing  # noqa: SLF001
        return outputs

    def display_data(self) -> dict[str, Any]:
        return {"guarantee": DisplayDataItem(self._guarantee, label="Guarantee")}

    def default_label(self) -> str:
        return f"{type(self).__name__}({self._gate.scope})"

    @property
    def _guarantee(self) -> str:
        return describe_guarantee(self._gate, self._sink)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._guarantee}>"


class WriteOnce(_Gated):
    """Write records so that one that arrives twice changes the world once.

    Outputs: `written` (`Written`, of which `replayed` ones caused their effect earlier), `duplicates` (`Duplicate`),
    `rejected` (`Refused`), `parked` (`Parked`). Raises `Misconfigured` for settings that contradict each other.
    """

    _tags = ("written", "duplicates", "rejected", "parked")

    def __init__(self, gate: Gate, sink: Sink) -> None:
        super().__init__(gate, sink)
        write_rules(gate, sink)


class DropDuplicates(_Gated):
    """Let every key pass for one occurrence, also when that is replayed, in front of any sink.

    Outputs: `passed` (the records themselves), `duplicates` (`Duplicate`), `rejected` (`Refused`). Raises
    `Misconfigured`.
    """

    _tags = ("passed", "duplicates", "rejected")

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate, None)
        drop_rules(gate)

    def expand(self, records: beam.PCollection[Any]) -> Outputs:
        outputs = super().expand(records)
        outputs["passed"].element_type = records.element_type
        return outputs


class StampFn(beam.DoFn):
    """Put a random UUID on each record, as its occurrence."""

    def process(self, record: Any) -> Iterable[Stamped]:
        """Return the stamped record."""
        return (Stamped(uuid.uuid4().bytes, record),)


class Stamp(beam.PTransform):
    """Give records that have no position an occurrence, for `Gate(occurrence=ByStamp())`.

    The stamp is drawn before a `Reshuffle`, which keeps it when what follows is repeated. A rerun of the job draws
    new ones: with `WriteOnce` its records are then duplicates.
    """

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[Any]:
        stamped = records | "Draw" >> beam.ParDo(StampFn()).with_output_types(Any)
        return stamped | "Keep" >> beam.Reshuffle().with_output_types(Any)


def _refuse_unshared(gate: Gate, pipeline: beam.Pipeline) -> None:
    """Refuse a ledger that the runner's workers would not share. Raises `Misconfigured`."""
    if gate.ledger is None or gate.ledger.shared:
        return
    runner = type(pipeline.runner)
    if not any(each.__name__ in _LOCAL_RUNNERS for each in runner.__mro__):
        raise Misconfigured(
            f"{gate.ledger!r} is for one machine, {runner.__name__} may use several: take MySQLLedger or RedisLedger"
        )
    mode = pipeline.options.view_as(DirectOptions).direct_running_mode
    if mode == "multi_processing" and isinstance(gate.ledger, MemoryLedger):
        raise Misconfigured(
            f"{gate.ledger!r} is for one process, and direct_running_mode={mode!r} uses several: take SQLiteLedger"
        )
