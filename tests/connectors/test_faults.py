"""The scripted faults: what each does to a call, and that the trace tells."""

import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from oncesink.connectors.contract import Claim, Entry, Finish, LedgerSession, ProvesFirst, Scope, Use, Write
from oncesink.connectors.errors import Misconfigured, OutcomeUnknown, Unavailable
from oncesink.connectors.faults import Call, Crash, Fault, Faults
from oncesink.connectors.faulty import FaultyCache, FaultyLedger, FaultyLedgerSession, FaultySink
from oncesink.connectors.memory import MemoryCache, MemoryLedger, forget_all
from oncesink.connectors.memory_sinks import MemoryTable
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.connectors.sqlite_table import SQLiteTable
from oncesink.pipelines.demo_kill import DyingTable

SCOPE = Scope(name="orders", use=Use.WRITE)
OWNER = bytes(16)
CLAIM = Claim(b"a" * 16, b"t/0/1", None)
NEXT = Claim(b"b" * 16, b"t/0/2", None)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    forget_all()


def opened(faults: Faults) -> LedgerSession:
    """Open a memory ledger behind a script."""
    return FaultyLedger(MemoryLedger(), faults).open(SCOPE)


def claim(session: LedgerSession, one: Claim = CLAIM) -> None:
    """Make one claim."""
    session.claim([one], owner=OWNER, lease_seconds=30.0)


def is_there(one: Claim = CLAIM) -> bool:
    """Tell whether the ledger behind holds the row."""
    return one.digest in MemoryLedger().open(SCOPE).read([one.digest])


@pytest.mark.parametrize(
    ("fault", "raises", "applied"),
    [
        (Fault.REFUSE, Unavailable, False),
        (Fault.LOSE_REQUEST, OutcomeUnknown, False),
        (Fault.LOSE_REPLY, OutcomeUnknown, True),
        (Fault.ARRIVE_LATE, OutcomeUnknown, False),
        (Fault.HANG, OutcomeUnknown, False),
        (Fault.HANG_APPLIED, OutcomeUnknown, True),
        (Fault.CRASH_BEFORE, Crash, False),
        (Fault.CRASH_AFTER, Crash, True),
    ],
)
def test_each_fault_raises_and_applies_what_it_says(
    fault: Fault, raises: type[BaseException], *, applied: bool
) -> None:
    """The table of faults, on a real call; the next call is whole again."""
    session = opened(Faults.at({("ledger", "claim", 1): fault}))
    with pytest.raises(raises):
        claim(session)
    assert is_there() is applied
    claim(session, NEXT)
    assert is_there(NEXT)


def test_a_late_call_is_applied_when_it_is_delivered() -> None:
    """A request that its caller has given up may arrive later, once."""
    faults = Faults.at({("ledger", "claim", 1): Fault.ARRIVE_LATE})
    with pytest.raises(OutcomeUnknown):
        claim(opened(faults))
    assert not is_there()
    assert faults.deliver() == 1
    assert is_there()
    assert faults.deliver() == 0


def test_a_hanging_call_tells_who_waits() -> None:
    """A test moves its clock there."""
    hung: list[str] = []
    faults = Faults.at({("ledger", "claim", 1): Fault.HANG}, on_hang=lambda: hung.append("time-out"))
    with pytest.raises(OutcomeUnknown):
        claim(opened(faults))
    assert hung == ["time-out"]


def test_a_sequence_breaks_calls_as_they_come() -> None:
    """This is the form for generated scripts; after its end nothing breaks."""
    session = opened(Faults.sequence([None, None, Fault.REFUSE]))
    claim(session)
    with pytest.raises(Unavailable):
        session.read([CLAIM.digest])
    assert session.read([CLAIM.digest])


def test_the_trace_holds_every_call_in_order() -> None:
    """Faults included, so that a test can assert what was and what was not asked."""
    faults = Faults(lambda call: Fault.REFUSE if call.verb == "finish" else None)
    session = opened(faults)
    claim(session)
    claim(session)
    with pytest.raises(Unavailable):
        session.finish([Finish(CLAIM)], owner=OWNER)
    assert faults.trace == [
        Call("ledger", "open", 1, 1),
        Call("ledger", "claim", 1, 2),
        Call("ledger", "claim", 2, 3),
        Call("ledger", "finish", 1, 4, Fault.REFUSE),
    ]
    assert faults.verbs("ledger") == ["open", "claim", "claim", "finish"]
    assert faults.verbs("sink") == []


@pytest.mark.parametrize(
    ("fault", "raises", "applied"),
    [
        (Fault.REFUSE, Unavailable, False),
        (Fault.LOSE_REPLY, OutcomeUnknown, True),
        (Fault.CRASH_BEFORE, Crash, False),
        (Fault.CRASH_AFTER, Crash, True),
    ],
)
def test_a_commit_may_fail_before_and_after(fault: Fault, raises: type[BaseException], *, applied: bool) -> None:
    """Before it the whole unit is rolled back, after it nothing is; the table writes on the ledger's own session."""
    faults = Faults.at({("ledger", "commit", 1): fault})
    ledger, table = MemoryLedger(), MemoryTable(MemoryLedger())
    session = FaultyLedger(ledger, faults).open(SCOPE)
    sink = FaultySink(table, faults).open(SCOPE, session)

    def unit() -> None:
        with session.transaction():
            claim(session)
            sink.write([Write("record", CLAIM.digest, CLAIM.occurrence)], timeout_seconds=1.0)

    with pytest.raises(raises):
        unit()
    assert is_there() is applied
    assert len(table.effects) == applied
    assert faults.verbs() == ["open", "open", "claim", "write", "commit"]


def test_a_table_finds_its_ledger_behind_the_wrapper() -> None:
    """Also where only the ledger is wrapped."""
    session = FaultyLedger(MemoryLedger(), Faults()).open(SCOPE)
    assert session.inner is not session
    MemoryTable(MemoryLedger()).open(SCOPE, session)


def test_a_cache_only_ever_says_unavailable() -> None:
    """That is all its contract allows."""
    faults = Faults.at({("cache", "put", 1): Fault.LOSE_REPLY, ("cache", "get", 1): Fault.HANG})
    cache = FaultyCache(MemoryCache(), faults).open(bytes(16))
    with pytest.raises(Unavailable):
        cache.get([CLAIM.digest])
    with pytest.raises(Unavailable):
        cache.put({CLAIM.digest: Entry(None, None, None)})
    assert CLAIM.digest in cache.get([CLAIM.digest])


def test_pickling_keeps_the_script() -> None:
    """A runner pickles what it runs, and the test still holds the script that counts."""
    faults = Faults()
    recipe = pickle.loads(pickle.dumps(FaultyLedger(MemoryLedger(), faults)))
    recipe.open(SCOPE)
    assert faults.verbs() == ["open"]
    pickled = pickle.dumps(Faults())
    with pytest.raises(Misconfigured):
        pickle.loads(pickled)


def test_a_wrapper_lets_the_sink_look_at_its_target_first(tmp_path: Path) -> None:
    """Else a misspelt table would stay with the scope: shared by the demo's dying table."""
    ledger = SQLiteLedger(str(tmp_path / "once.db"), retention=timedelta(days=1))
    table = SQLiteTable(ledger, "mispelt")
    for wrapped in (FaultySink(table, Faults()), DyingTable(table, 1, tmp_path / "words")):
        assert isinstance(wrapped, ProvesFirst)
        with pytest.raises(Misconfigured, match="mispelt"):
            wrapped.prove()
    FaultySink(MemoryTable(MemoryLedger()), Faults()).prove()


def test_upkeep_meets_faults_too() -> None:
    """Listing, counting and forgetting, by their names; a ledger that cannot is told so."""
    session = opened(Faults.at({("ledger", "open_rows", 1): Fault.REFUSE, ("ledger", "forget", 1): Fault.LOSE_REPLY}))
    assert isinstance(session, FaultyLedgerSession)
    session.claim([CLAIM], owner=OWNER, lease_seconds=-1.0)
    with pytest.raises(Unavailable):
        session.open_rows(older_than_seconds=0.0, limit=1)
    assert [row.digest for row in session.open_rows(older_than_seconds=0.0, limit=2).rows] == [CLAIM.digest]
    assert session.count_open(older_than_seconds=0.0) == (1, 0)
    with pytest.raises(OutcomeUnknown):
        session.forget([CLAIM.digest])
    assert not is_there()
