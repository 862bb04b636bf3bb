"""The gate in PyFlink: `OnceSink`, `write_once`, `drop_duplicates`, `stamp`, and `RichSinkFunction` for own sinks.

    stream.sink_to(OnceSink(gate, MySQLTable(...)))

    streams = write_once(stream, gate, sink)
    streams.duplicates.map(...)

Each puts two steps behind the stream: one finds the shard of each record, then the records hop to their shards, where
they are prepared and taken through the gate in batches. What waits is part of the job's state, so a job goes on from
checkpoints and savepoints, never from group offsets. Operator uids come from the scope, so a savepoint fits whatever
is built around them.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any

from pyflink.common import Types
from pyflink.datastream import DataStream
from pyflink.datastream.connectors.base import Sink as FlinkSink
from pyflink.datastream.connectors.base import SupportsPreprocessing

from ..connectors.contract import Scope, Sink
from ..connectors.errors import Misconfigured
from ..connectors.json_lines import json_line
from .flink_checks import check_job
from .flink_function import GateFunction, ShardFunction
from .flink_outputs import FilteredStreams, OnceStreams, Outputs, side_outputs
from .flink_shards import shard_keys
from .flink_sink import PythonSink, RichSinkFunction, known_sink
from .flink_stamp import stamp
from .gate import Destination, Gate, drop_rules, drop_scope, write_rules, write_scope
from .results import Parked, Refused

__all__ = [
    "FilteredStreams",
    "OnceSink",
    "OnceStreams",
    "RichSinkFunction",
    "drop_duplicates",
    "stamp",
    "write_once",
]

MAX_PARALLELISM = 128
"""Key groups, where the environment does not set them. A savepoint keeps its number."""

AnySink = Sink | RichSinkFunction


def write_once(
    stream: DataStream, gate: Gate, sink: AnySink, *, max_parallelism: int | None = None, one_machine: bool = False
) -> OnceStreams:
    """Write each record once; return the streams of what was written, of duplicates, of rejected and of parked records.

    None of the streams has to be used. Event time ends here: what comes out bears the time of the flush.

    `max_parallelism` is that of the environment unless set, else 128. `one_machine=True` says that all workers share
    a file system and a kernel, so that a SQLite ledger may serve several. Raises `Misconfigured`, in one line, for
    jobs that could not keep the promise.
    """
    main, sides = _through(stream, gate, known_sink(sink), max_parallelism=max_parallelism, one_machine=one_machine)
    return OnceStreams(written=main, **sides)


def drop_duplicates(
    stream: DataStream, gate: Gate, *, max_parallelism: int | None = None, one_machine: bool = False
) -> FilteredStreams:
    """Let each key pass for one occurrence; return the streams of what passed, of duplicates and of rejected records.

    What passed has the type of the input. It passes again when Flink replays it, so what is behind must take back
    what it had: state, or a two-phase sink under EXACTLY_ONCE checkpoints. Arguments and errors as for `write_once`.
    """
    main, sides = _through(stream, gate, None, max_parallelism=max_parallelism, one_machine=one_machine)
    return FilteredStreams(passed=main, **sides)


class OnceSink(PythonSink):
    """A sink for `stream.sink_to(...)` that writes each record once.

    `sink` is one of `oncesink.connectors`, a `RichSinkFunction`, or any sink of Flink's own (files, Kafka): in front
    of that one stands `drop_duplicates`, and its two-phase commit does the rest.

    `rejected` and `parked` replace the gate's: `"raise"`, `"output"`, a sink of the library, or a sink of Flink's,
    which gets JSON lines. With `told=True` the property `results` holds the streams that come out, once the sink is
    behind a stream; without it what was written and what is a duplicate stays where it is, which is sooner. Other
    arguments and errors as for `write_once`.
    """

    def __init__(
        self,
        gate: Gate,
        sink: AnySink | FlinkSink,
        *,
        rejected: Destination | FlinkSink | None = None,
        parked: Destination | FlinkSink | None = None,
        told: bool = False,
        max_parallelism: int | None = None,
        one_machine: bool = False,
    ) -> None:
        super().__init__()
        attached = {"rejected": rejected, "parked": parked}
        self._attached = {kind: each for kind, each in attached.items() if _is_flinks(each)}
        given = {kind: "output" if _is_flinks(each) else each for kind, each in attached.items() if each is not None}
        self._gate = replace(gate, **given)  # type: ignore[arg-type]
        self._sink = sink
        self._told = told
        self._options: dict[str, Any] = {"max_parallelism": max_parallelism, "one_machine": one_machine, "told": told}
        self._streams: OnceStreams | FilteredStreams | None = None
        if not told:
            self._refuse_untold()

    @property
    def results(self) -> OnceStreams | FilteredStreams:
        """Return the streams that come out. Raises `RuntimeError` where there are none, or not yet."""
        if self._streams is None:
            raise RuntimeError(
                "results are there once stream.sink_to(...) was called with this sink"
                if self._told
                else "OnceSink gives out streams with told=True, and write_once(stream, gate, sink) always"
            )
        return self._streams

    def apply(self, stream: DataStream) -> DataStream:
        filters = _is_flinks(self._sink)
        main, sides = _through(stream, self._gate, None if filters else known_sink(self._sink), **self._options)
        if self._told:
            self._streams = FilteredStreams(passed=main, **sides) if filters else OnceStreams(written=main, **sides)
        for kind, sink in self._attached.items():
            lines = sides[kind].map(letter, Types.STRING())
            lines.sink_to(sink).name(f"{kind} of {self._gate.scope}")
        return _preprocess(main, self._sink) if filters else main

    def _refuse_untold(self) -> None:
        """Raise `Misconfigured` where records would go to an output that nobody can reach."""
        for kind in ("rejected", "parked"):
            if getattr(self._gate, kind) == "output" and kind not in self._attached:
                raise Misconfigured(
                    f'{kind}="output": OnceSink gives out streams with told=True; or name a sink for what is {kind}'
                )

    def java_sink(self) -> Any:
        sink: Any = self._sink
        return sink.get_java_function() if _is_flinks(sink) else super().java_sink()


def letter(outcome: Refused | Parked) -> str:
    """Return an outcome as one line of JSON, for files and topics; any record has one: see `json_lines.py`."""
    return json_line(outcome._asdict()).decode().rstrip("\n")


def _through(
    stream: DataStream,
    gate: Gate,
    sink: Sink | None,
    *,
    max_parallelism: int | None,
    one_machine: bool,
    told: bool = True,
) -> tuple[DataStream, dict[str, DataStream]]:
    if sink is None:
        drop_rules(gate)
        output_type = stream.get_type()
    else:
        write_rules(gate, sink)
        output_type = Types.PICKLED_BYTE_ARRAY()
    environment = stream.get_execution_environment()
    check_job(environment, gate, sink, one_machine=one_machine)
    groups = max_parallelism or max(environment.get_max_parallelism(), 0) or MAX_PARALLELISM
    scope = drop_scope(gate) if sink is None else write_scope(gate, sink)
    uid = uid_of(scope)
    outputs = Outputs(filters=sink is None, told=told)
    prepared = stream.process(ShardFunction(gate, scope, shard_keys(gate.shards, groups)), Types.PICKLED_BYTE_ARRAY())
    prepared.name(f"{uid} keys").uid(f"{uid}-keys")
    main = prepared.key_by(itemgetter(0), Types.LONG()).process(GateFunction(gate, sink, outputs), output_type)
    main.name(uid).uid(uid).set_max_parallelism(groups)
    return main, side_outputs(main, outputs, uid)


def uid_of(scope: Scope) -> str:
    """Return the uid of a gate's operator: two gates of one scope in one job are refused by Flink, as they must be."""
    return f"oncesink-{scope.use.value}-{scope.name}"


def _is_flinks(sink: Any) -> bool:
    return isinstance(sink, FlinkSink) and not isinstance(sink, PythonSink)


def _preprocess(stream: DataStream, sink: Any) -> DataStream:
    """Apply the steps that some of Flink's sinks bring along, as `sink_to` does."""
    transformer = sink.get_transformer() if isinstance(sink, SupportsPreprocessing) else None
    return stream if transformer is None else transformer.apply(stream)
