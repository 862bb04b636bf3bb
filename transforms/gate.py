"""`Gate`: the one settings value that every entry takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from ..connectors.contract import Cache, KeepsNewest, Ledger, Scope, Sink, SinkKind, Use
from ..connectors.errors import Misconfigured
from ..connectors.wanted import check_durations
from .decide import OnReplay, Rules
from .digest import FORMAT
from .gate_values import check_whole, refuse_misfits
from .keys import ByStamp, Fields, KeyRecipe, OccurrenceRecipe
from .membership import AnyRecipe
from .stored import ResultKind, Serialiser

DEFAULT_LEASE = timedelta(seconds=30)
DEFAULT_GRACE = timedelta(seconds=10)

STORED_BYTES = 2**24 - 256
"""What a MEDIUMBLOB holds, with room for the name of a serialiser."""

Destination = Literal["raise", "output"] | Sink


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """How much goes through the gate at once: whatever bound is reached first.

    `record_bytes` bounds one record's canonical form, `key_bytes` one key's, `payload_bytes` what `redrive` stores of
    one; what is larger is rejected. A result larger than `result_bytes` is not stored.
    """

    rows: int = 1000
    bytes: int = 4 * 1024 * 1024
    linger: timedelta = timedelta(seconds=1)
    record_bytes: int = 1024 * 1024
    key_bytes: int = 1024
    payload_bytes: int = 64 * 1024
    result_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        check_durations(self)
        check_whole(self, "rows", "bytes", "record_bytes", "key_bytes", "payload_bytes", "result_bytes")
        bounds = (self.rows, self.bytes, self.record_bytes, self.key_bytes, self.payload_bytes, self.result_bytes)
        if max(self.payload_bytes, self.result_bytes) > STORED_BYTES:
            raise Misconfigured(f"payload_bytes and result_bytes are at most {STORED_BYTES}: {self!r}")
        if min(bounds) < 1 or self.linger < timedelta(0):
            raise Misconfigured(f"every bound of a batch is positive: {self!r}")
        if self.record_bytes > self.bytes:
            raise Misconfigured(f"record_bytes={self.record_bytes} cannot exceed bytes={self.bytes}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """How records are recognised, where that is remembered, and what happens to those that cannot pass.

    `scope` names one sink of one pipeline family. Raising `generation` reprocesses on purpose. `lease` is how long a
    claim is held for a sink that is not in the ledger's transaction (30 s unless set), `grace` the longest such a
    sink may need to apply, or to show, a request whose caller gave up (10 s unless set). `on_replay` says what to do
    with a record in doubt: `write` it again, `probe` the sink, or `park` it. `payload` chooses what is hashed to
    tell a resend from a conflict; by default the record without the fields that its occurrence reads. `start_from`
    is where `oncesink rebuild` stored filters: a shard without state begins with its own of them. `observe=True` drops
    nothing: the ledger learns, and `would_drop` counts what would not have been written. `rejected` and `parked` name
    who takes such records: a sink, the `output` of that name, or nobody (`raise`). `redrive`, "json" or a `Serialiser`,
    stores each record in its claim, so that `Reconciler` can write one that nobody brings again. `results` says what of
    a sink's results is kept for duplicates: none (`off`), `bytes`, or any value as `json`.
    """

    scope: str
    key: KeyRecipe
    occurrence: OccurrenceRecipe | None
    ledger: Ledger | None = None
    cache: Cache | None = None
    membership: AnyRecipe | None = None
    start_from: str | None = None
    on_replay: OnReplay | None = None
    lease: timedelta | None = None
    grace: timedelta | None = None
    generation: int = 1
    shards: int = 16
    batch: Batch = field(default_factory=Batch)
    payload: KeyRecipe | Literal["content", "none"] = "content"
    observe: bool = False
    rejected: Destination = "raise"
    parked: Destination = "raise"
    redrive: Serialiser | Literal["json"] | None = None
    results: ResultKind = "bytes"

    def __post_init__(self) -> None:
        refuse_misfits(self)
        if not isinstance(self.batch, Batch):
            raise Misconfigured(f"batch is such as Batch(rows=1000), not {self.batch!r}")
        if self.on_replay == "park" and self.parked == "raise":
            raise Misconfigured("on_replay='park' needs parked='output' or a sink that takes parked records")

    @property
    def lease_seconds(self) -> float:
        return (self.lease or DEFAULT_LEASE).total_seconds()

    @property
    def grace_seconds(self) -> float:
        return (DEFAULT_GRACE if self.grace is None else self.grace).total_seconds()


def write_scope(gate: Gate, sink: Sink) -> Scope:
    """Return the scope of a writer: what must stay the same under one generation."""
    meaning = {"sink": sink.kind.value, "target": sink.target, **_recipes(gate)}
    return Scope(name=gate.scope, use=Use.WRITE, generation=gate.generation, meaning=meaning)


def drop_scope(gate: Gate) -> Scope:
    """Return the scope of a filter."""
    return Scope(name=gate.scope, use=Use.DROP, generation=gate.generation, meaning=_recipes(gate))


def write_rules(gate: Gate, sink: Sink) -> Rules:
    """Return the rules of a writer. Raises `Misconfigured` where settings contradict the sink or would do nothing."""
    if not isinstance(sink, Sink):
        raise Misconfigured(f"sink is a recipe such as MySQLTable(...) or CallableSink.each(send, ...), not {sink!r}")
    checks = {SinkKind.TRANSACTIONAL: _check_transactional, SinkKind.EXTERNAL: _check_external}
    checks.get(sink.kind, _check_drops_by_key)(gate, sink)
    _check_versions(gate, sink)
    _check_destinations(gate)
    return Rules(
        use=Use.WRITE,
        kind=sink.kind,
        on_replay=gate.on_replay,
        lease_seconds=gate.lease_seconds,
        grace_seconds=gate.grace_seconds,
        remembers_seconds=sink.remembers.total_seconds() if sink.remembers is not None else None,
    )


def drop_rules(gate: Gate) -> Rules:
    """Return the rules of a filter. Raises `Misconfigured`."""
    if gate.ledger is None:
        raise Misconfigured("DropDuplicates needs a ledger: it has no sink that could remember keys")
    if gate.occurrence is None:
        raise Misconfigured(
            "DropDuplicates needs an occurrence: without it a replay cannot be told from a second send, and is lost"
        )
    if isinstance(gate.occurrence, ByStamp):
        raise Misconfigured(
            "DropDuplicates refuses stamps: a rerun draws new ones and loses what had passed; use WriteOnce"
        )
    _refuse_useless(gate, "DropDuplicates", "on_replay", "lease", "grace", "parked", "redrive", "results")
    _check_destinations(gate)
    return Rules(use=Use.DROP)


def describe_guarantee(gate: Gate, sink: Sink | None) -> str:
    """Return, in one line, what holds: the sink's kind chooses it, not a flag."""
    observed = "only observed, nothing is dropped; without observe=True " if gate.observe else ""
    away = "; at least once while the ledger is away" if getattr(gate.ledger, "outage", "fail") != "fail" else ""
    return f"scope {gate.scope!r}: {observed}{_guarantee(gate, sink)}{away}"


def _guarantee(gate: Gate, sink: Sink | None) -> str:
    if sink is None:
        return "every key passes for one occurrence, while its row is kept and the engine takes back what it replays"
    if sink.kind is SinkKind.TRANSACTIONAL:
        return f"exactly once into {sink.target}, ledger row and business row in one transaction"
    if gate.ledger is None and sink.tells_occurrence:
        return f"{_by_its_own_key(sink)}; the occurrence in it tells a replay from a second send"
    if gate.ledger is None:
        return (
            f"{_by_its_own_key(sink)}; a replay and a second send look alike:"
            " both go to 'written', marked replayed unless surely new"
        )
    if sink.kind is SinkKind.DROPS_BY_KEY:
        limit = "for ever" if sink.remembers is None else f"for {sink.remembers}, then on_replay={gate.on_replay!r}"
        return f"once into {sink.target}, which drops a second write by key {limit}"
    return (
        f"once into {sink.target}, but for records in doubt: they wait for the lease, then on_replay={gate.on_replay!r}"
    )


def _by_its_own_key(sink: Sink) -> str:
    limit = "" if sink.remembers is None else f", for {sink.remembers}"
    return f"once into {sink.target} by its own unique key{limit}"


def _recipes(gate: Gate) -> Mapping[str, str]:
    payload = gate.payload if isinstance(gate.payload, str) else gate.payload.description
    return {
        "encoding": str(FORMAT),
        "key": gate.key.description,
        "occurrence": "none" if gate.occurrence is None else gate.occurrence.description,
        "payload": payload,
    }


def _refuse_useless(gate: Gate, where: str, *names: str) -> None:
    defaults = {"generation": 1, "parked": "raise", "results": "bytes"}
    useless = [f"{name}={getattr(gate, name)!r}" for name in names if getattr(gate, name) != defaults.get(name)]
    if useless:
        raise Misconfigured(f"{where} does nothing with {', '.join(useless)}: remove it")


def _check_transactional(gate: Gate, sink: Sink) -> None:
    if gate.ledger is None or _behind(getattr(_behind(sink), "ledger", None)) != _behind(gate.ledger):
        raise Misconfigured(
            f"{sink.target} commits together with its ledger: give the gate that same ledger, not {gate.ledger!r}"
        )
    _refuse_useless(
        gate, f"{sink.target} (transactional)", "on_replay", "lease", "grace", "parked", "redrive", "results"
    )


def _behind(recipe: object) -> object:
    """Return what a wrapper wraps: a script of faults does not change whose transaction it is."""
    return getattr(recipe, "inner", recipe)


def _check_drops_by_key(gate: Gate, sink: Sink) -> None:
    if gate.ledger is None:
        names = ["on_replay", "lease", "grace", "generation", "parked", "redrive"]
        names += [] if gate.cache else ["membership"]
        return _refuse_useless(gate, f"{sink.target} without a ledger", *names)
    if sink.remembers is None:
        _refuse_useless(gate, f"{sink.target} (drops a second write by key for ever)", "on_replay")
    elif gate.on_replay is None:
        raise Misconfigured(
            f"{sink.target} remembers keys for {sink.remembers} only: choose on_replay for open rows older than that"
        )
    elif sink.remembers.total_seconds() < gate.lease_seconds:
        raise Misconfigured(
            f"{sink.target} remembers keys for {sink.remembers}, but a call is repeated for as long as"
            f" lease={gate.lease or DEFAULT_LEASE}: shorten the lease"
        )
    _check_lease(gate, sink)


def _check_external(gate: Gate, sink: Sink) -> None:
    if gate.ledger is None:
        raise Misconfigured(f"{sink.target} does not recognise keys, so the gate needs a ledger")
    if gate.on_replay is None:
        raise Misconfigured(
            f"{sink.target} would write a second time: choose on_replay='write' (perhaps twice after a crash),"
            " 'probe' (ask the sink) or 'park' (a person decides)"
        )
    _check_lease(gate, sink)


def _check_lease(gate: Gate, sink: Sink) -> None:
    if gate.on_replay == "probe" and not sink.can_probe:
        raise Misconfigured(
            f"on_replay='probe', but {sink.target} cannot be asked: give it probe=, or choose 'write' or 'park'"
        )
    if gate.lease_seconds <= sink.timeout.total_seconds():
        raise Misconfigured(
            f"lease={gate.lease or DEFAULT_LEASE} must be longer than the sink's time-out, {sink.timeout}"
        )


def _check_versions(gate: Gate, sink: Sink) -> None:
    """Refuse a key without the version: an update would be taken for a second send of what it replaces."""
    behind = _behind(sink)
    path = behind.version_path if isinstance(behind, KeepsNewest) else None
    if path is not None and isinstance(gate.key, Fields) and path not in gate.key.paths:
        fields = ", ".join(repr(each) for each in (*gate.key.paths, path))
        raise Misconfigured(
            f"{sink.target}: key={gate.key.description} does not tell versions apart: take Fields({fields})"
        )


def _check_destinations(gate: Gate) -> None:
    for name, value in (("rejected", gate.rejected), ("parked", gate.parked)):
        if isinstance(value, Sink) and value.kind is SinkKind.TRANSACTIONAL:
            raise Misconfigured(f"{name}={value!r} commits only together with a ledger: choose a sink of its own")
