"""`Gate`: what contradicts or does nothing is refused at once, by a message that names all of it."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from oncesink.connectors.callable_sink import CallableSink
from oncesink.connectors.contract import Ledger, Sink, Use
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.faults import Faults
from oncesink.connectors.faulty import FaultyLedger, FaultySink
from oncesink.connectors.lru_cache import LRUCache
from oncesink.connectors.memory import MemoryCache, MemoryLedger, forget_all
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.transforms import Batch, Bloom, ByStamp, Content, Fields, Gate, GateSession, OnceWriter, SourcePosition
from oncesink.transforms.gate import describe_guarantee, drop_rules, drop_scope, write_rules, write_scope

LEDGER = MemoryLedger()
TABLE = MemoryTable(LEDGER)
EXTERNAL = MemorySink()
DROPPING = MemorySink(drops_by_key=True)
FORGETFUL = MemorySink(drops_by_key=True, remembers=timedelta(hours=1))
BLIND = CallableSink(print, name="mails")
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    forget_all()


def gate(**settings: Any) -> Gate:
    given = {"scope": "orders", "key": Fields("id"), "occurrence": SourcePosition("s", "offset"), "ledger": LEDGER}
    return Gate(**{**given, **settings})


def refusal(sink: Sink | None, **settings: Any) -> str:
    """Return the message by which these settings are refused, whenever that is."""
    with pytest.raises(Misconfigured) as caught:
        _ = drop_rules(gate(**settings)) if sink is None else write_rules(gate(**settings), sink)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"scope": ""}, ["scope", "''"]),
        ({"scope": "é" * 33}, ["scope", "64 bytes"]),
        ({"key": "order_id"}, ["key", "'order_id'", "Fields("]),
        ({"key": ByStamp()}, ["key=ByStamp()", "ByStamp(stable_order=True)"]),
        ({"occurrence": ByStamp(stable_order=True)}, ["occurrence=ByStamp(stable_order=True)"]),
        ({"occurrence": "offset"}, ["occurrence", "'offset'", "SourcePosition("]),
        ({"generation": 0}, ["generation=0"]),
        ({"shards": 0}, ["shards=0"]),
        ({"on_replay": "drop"}, ["on_replay", "'drop'", "'park'"]),
        ({"lease": timedelta(0)}, ["lease"]),
        ({"lease": -SECOND}, ["lease"]),
        ({"grace": -SECOND}, ["grace"]),
        ({"rejected": "drop"}, ["rejected", "'drop'", "'output'"]),
        ({"rejected": None}, ["rejected", "None"]),
        ({"parked": print}, ["parked", "print"]),
        ({"on_replay": "park"}, ["on_replay='park'", "parked='output'"]),
        ({"cache": MemoryCache(ttl=timedelta(days=7))}, ["ttl=7 days", "retention=7 days", "0:01:00"]),
        ({"cache": LRUCache(ttl=timedelta(days=8), entries=1)}, ["ttl=8 days", "retention=7 days"]),
    ],
)
def test_a_value_that_cannot_be_is_refused(settings: dict[str, Any], named: list[str]) -> None:
    """When the gate is made, before any store is asked."""
    with pytest.raises(Misconfigured) as caught:
        gate(**settings)
    assert all(each in str(caught.value) for each in named), str(caught.value)


@pytest.mark.parametrize(
    "bounds",
    [{"rows": 0}, {"bytes": 0}, {"record_bytes": 0}, {"key_bytes": 0}, {"linger": -SECOND}],
    ids=",".join,
)
def test_a_batch_has_positive_bounds(bounds: dict[str, Any]) -> None:
    """The message shows them all."""
    with pytest.raises(Misconfigured, match=next(iter(bounds))):
        Batch(**bounds)


def test_a_record_fits_into_its_batch() -> None:
    """Otherwise a record could be admitted that no batch may hold."""
    with pytest.raises(Misconfigured, match=r"record_bytes=11 .* bytes=10"):
        Batch(bytes=10, record_bytes=11)
    Batch(bytes=10, record_bytes=10)


def test_a_cache_entry_expires_before_its_row() -> None:
    """By a margin of one minute: an entry that outlived its row would drop a record of a new life."""
    gate(cache=MemoryCache(ttl=timedelta(days=7) - timedelta(minutes=1)))
    with pytest.raises(Misconfigured, match="retention"):
        gate(cache=MemoryCache(ttl=timedelta(days=7) - timedelta(seconds=59)))


@pytest.mark.parametrize(
    ("sink", "settings", "named"),
    [
        (TABLE, {"ledger": None}, ["memory table table", "None"]),
        (TABLE, {"ledger": MemoryLedger("other")}, ["same ledger", "other"]),
        (
            TABLE,
            {"on_replay": "park", "lease": SECOND, "grace": SECOND, "parked": "output"},
            ["on_replay='park'", "lease=", "grace=", "parked='output'", "transactional"],
        ),
        (TABLE, {"rejected": TABLE}, ["rejected=", "ledger"]),
        (EXTERNAL, {"ledger": None}, ["memory sink sink", "needs a ledger"]),
        (EXTERNAL, {}, ["'write'", "'probe'", "'park'"]),
        (EXTERNAL, {"on_replay": "write", "lease": 10 * SECOND}, ["lease=0:00:10", "time-out, 0:00:10"]),
        (EXTERNAL, {"on_replay": "write", "parked": TABLE}, ["parked=", "ledger"]),
        (BLIND, {"on_replay": "probe"}, ["on_replay='probe'", "callable mails", "probe="]),
        (
            DROPPING,
            {
                "ledger": None,
                "on_replay": "write",
                "lease": SECOND,
                "grace": SECOND,
                "generation": 2,
                "parked": "output",
            },
            ["on_replay='write'", "lease=", "grace=", "generation=2", "parked='output'", "without a ledger"],
        ),
        (DROPPING, {"ledger": None, "membership": Bloom(capacity=10, error_rate=0.01)}, ["membership="]),
        (DROPPING, {"on_replay": "write"}, ["on_replay='write'", "for ever"]),
        (DROPPING, {"lease": 10 * SECOND}, ["lease=0:00:10", "0:00:10"]),
        (FORGETFUL, {}, ["1:00:00", "on_replay"]),
        (FORGETFUL, {"on_replay": "write", "lease": timedelta(hours=2)}, ["1:00:00", "lease=2:00:00"]),
        (None, {"ledger": None}, ["DropDuplicates", "ledger"]),
        (None, {"occurrence": None}, ["DropDuplicates", "occurrence"]),
        (None, {"occurrence": ByStamp()}, ["DropDuplicates", "stamps"]),
        (
            None,
            {"on_replay": "write", "lease": SECOND, "grace": SECOND, "parked": "output"},
            ["on_replay='write'", "lease=", "grace=", "parked='output'"],
        ),
        (None, {"rejected": TABLE}, ["rejected="]),
    ],
)
def test_settings_that_do_not_fit_the_sink_are_refused(sink: Sink | None, settings: Any, named: list[str]) -> None:
    """A setting that contradicts the sink, or would do nothing, is named together with all others that do."""
    message = refusal(sink, **settings)
    assert all(each in message for each in named), message


@pytest.mark.parametrize(
    ("sink", "settings"),
    [
        (TABLE, {}),
        (TABLE, {"key": ByStamp(stable_order=True), "occurrence": ByStamp()}),
        (TABLE, {"generation": 2, "rejected": "output", "membership": Bloom(capacity=10, error_rate=0.01)}),
        (DROPPING, {}),
        (DROPPING, {"lease": 11 * SECOND, "grace": timedelta(0), "parked": "output"}),
        (DROPPING, {"ledger": None}),
        (
            DROPPING,
            {
                "ledger": None,
                "occurrence": None,
                "cache": MemoryCache(),
                "membership": Bloom(capacity=10, error_rate=0.01),
            },
        ),
        (FORGETFUL, {"on_replay": "probe"}),
        (EXTERNAL, {"on_replay": "probe", "occurrence": None}),
        (EXTERNAL, {"on_replay": "park", "parked": DROPPING, "rejected": EXTERNAL}),
        (BLIND, {"on_replay": "write"}),
        (None, {"generation": 3, "cache": MemoryCache()}),
    ],
)
def test_settings_that_fit_are_taken(sink: Sink | None, settings: dict[str, Any]) -> None:
    """The refusals above are no accident of the rest."""
    made = gate(**settings)
    rules = drop_rules(made) if sink is None else write_rules(made, sink)
    assert (rules.use is Use.DROP) == (sink is None)
    assert {name: getattr(made, name) for name in settings} == settings
    assert sink is None or (rules.kind, rules.on_replay) == (sink.kind, made.on_replay)
    assert sink is None or (rules.lease_seconds, rules.grace_seconds) == (made.lease_seconds, made.grace_seconds)


def test_a_script_of_faults_changes_no_setting() -> None:
    """A table in its ledger's transaction stays one when either, or both, meet scripted faults."""
    faulty = FaultyLedger(LEDGER, Faults())
    pairs: list[tuple[Ledger, Sink]] = [(faulty, TABLE), (LEDGER, FaultySink(TABLE, Faults()))]
    for ledger, sink in [*pairs, (faulty, FaultySink(TABLE, Faults()))]:
        write_rules(gate(ledger=ledger), sink)
    with pytest.raises(Misconfigured):
        write_rules(gate(ledger=FaultyLedger(MemoryLedger("other"), Faults())), TABLE)


def test_defaults() -> None:
    """What is not set is what the documentation says."""
    plain = gate()
    assert (plain.lease_seconds, plain.grace_seconds, plain.generation, plain.shards) == (30.0, 10.0, 1, 16)
    assert (plain.rejected, plain.parked, plain.payload, plain.on_replay) == ("raise", "raise", "content", None)
    assert (plain.batch.rows, plain.batch.bytes, plain.batch.linger) == (1000, 4 * 2**20, SECOND)
    assert gate(grace=timedelta(0)).grace_seconds == 0.0


def test_rules_carry_what_was_set() -> None:
    """In seconds."""
    rules = write_rules(gate(on_replay="probe", lease=timedelta(minutes=2), grace=3 * SECOND), FORGETFUL)
    assert (rules.lease_seconds, rules.grace_seconds, rules.remembers_seconds) == (120.0, 3.0, 3600.0)
    assert (rules.kind, rules.on_replay) == (FORGETFUL.kind, "probe")


def test_a_gate_is_a_value() -> None:
    """It compares by its settings, changes only by `replace`, and survives pickling with all that is in it."""
    full = gate(
        cache=MemoryCache(),
        membership=Bloom(capacity=10, error_rate=0.01),
        on_replay="park",
        lease=timedelta(minutes=1),
        batch=Batch(rows=5),
        payload=Content(without=("at",)),
        rejected=MemorySink("dead"),
        parked="output",
    )
    assert pickle.loads(pickle.dumps(full)) == full
    assert replace(full, generation=2) != full
    assert replace(full) == full
    with pytest.raises(AttributeError):
        full.scope = "other"  # type: ignore[misc]


def test_the_scope_holds_what_must_stay_the_same() -> None:
    """Sink, recipes, payload and encoding, but not the source label, the batch or the lease."""
    meaning = write_scope(gate(), EXTERNAL).meaning
    assert meaning == {
        "sink": "external",
        "target": "memory sink sink",
        "encoding": "1",
        "key": "Fields(id)",
        "occurrence": "SourcePosition(offset)",
        "payload": "content",
    }
    same = gate(occurrence=SourcePosition("other label", "offset"), batch=Batch(rows=1), lease=SECOND)
    assert write_scope(same, EXTERNAL).meaning == meaning
    others = [gate(key=Fields("id", nfc=True)), gate(occurrence=None), gate(payload="none"), gate(payload=Content())]
    assert all(write_scope(other, EXTERNAL).meaning != meaning for other in others)
    assert write_scope(gate(), MemorySink("other")).meaning != meaning
    assert drop_scope(gate()).meaning == {name: meaning[name] for name in ("encoding", "key", "occurrence", "payload")}
    assert (drop_scope(gate()).use, write_scope(gate(generation=4), EXTERNAL).generation) == ("drop", 4)


GUARANTEES: list[tuple[Sink | None, dict[str, Any], str]] = [
    (TABLE, {}, "exactly once into memory table table, ledger row and business row in one transaction"),
    (DROPPING, {}, "once into memory sink sink, which drops a second write by key for ever"),
    (FORGETFUL, {"on_replay": "probe"}, "drops a second write by key for 1:00:00, then on_replay='probe'"),
    (DROPPING, {"ledger": None}, "by its own unique key; a replay and a second send look alike"),
    (EXTERNAL, {"on_replay": "write"}, "but for records in doubt: they wait for the lease, then on_replay='write'"),
    (None, {}, "every key passes for one occurrence"),
]


@pytest.mark.parametrize(("sink", "settings", "line"), GUARANTEES, ids=[line[:30] for _, _, line in GUARANTEES])
def test_the_guarantee_stands_in_one_line_at_start(
    sink: Sink | None, settings: dict[str, Any], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The sink's kind chooses it; nobody has to look it up, or can believe in another one."""
    with caplog.at_level(logging.INFO, logger="oncesink"):
        session = GateSession(gate(**settings), sink)
    session.close()
    told = [each.getMessage() for each in caplog.records if each.name.startswith("oncesink")]
    assert len(told) == 1
    assert told[0].startswith("scope 'orders': ")
    assert line in told[0]
    assert told[0] == describe_guarantee(gate(**settings), sink)


@pytest.mark.parametrize(
    ("sink", "settings", "line"), GUARANTEES[:-1], ids=[line[:30] for _, _, line in GUARANTEES[:-1]]
)
def test_the_guarantee_stands_in_the_repr(sink: Sink, settings: dict[str, Any], line: str) -> None:
    """Of the open writer."""
    with OnceWriter(gate(**settings), sink) as writer:
        assert line in repr(writer)


def test_a_scope_that_changed_its_meaning_is_refused_until_its_generation_is_raised() -> None:
    """The store remembers what the keys meant."""
    OnceWriter(gate(), TABLE).close()
    OnceWriter(gate(occurrence=SourcePosition("another label", "offset")), TABLE).close()
    with pytest.raises(Misconfigured, match=r"key was 'Fields\(id\)', is 'Fields\(id, version\)'.*generation"):
        OnceWriter(gate(key=Fields("id", "version")), TABLE)
    with pytest.raises(Misconfigured, match="target was 'memory table table', is 'memory table other'"):
        OnceWriter(gate(), MemoryTable(LEDGER, "other"))
    OnceWriter(gate(key=Fields("id", "version"), generation=2), TABLE).close()
    with pytest.raises(Misconfigured, match="is at generation 2"):
        OnceWriter(gate(), TABLE)
