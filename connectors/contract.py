"""What the gate asks of a ledger, a cache and a sink.

Each is a *recipe* (settings: frozen, picklable, no client inside) whose `open()` gives a live *session*, which
belongs to one thread. Times are judged by the store's own clock. Digests are 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from .errors import Misconfigured, Reason


class Use(str, Enum):
    """What a scope's rows stand for; part of every digest: a filter and a writer never see each other's rows."""

    DROP = "drop"
    WRITE = "write"


class SinkKind(str, Enum):
    """What a second write of the same key does, and so what a replay may do."""

    TRANSACTIONAL = "transactional"
    """It commits together with the ledger rows: there is no second write."""
    DROPS_BY_KEY = "drops_by_key"
    """The sink recognises the key and changes nothing: a second call is harmless."""
    EXTERNAL = "external"
    """It would happen again: a record in doubt waits for the lease, then for `on_replay`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The namespace of keys that a session works in, and what its keys mean.

    `meaning` holds what must not change under one generation: kind and target of the sink, key and occurrence recipes,
    encoding version. Opening a scope whose stored meaning differs raises `Misconfigured`, unless the generation is
    higher.
    """

    name: str
    use: Use
    generation: int = 1
    meaning: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < len(self.name.encode()) <= 64:
            raise Misconfigured(f"scope must have 1 to 64 bytes of UTF-8, not {self.name!r}")
        if self.generation < 1:
            raise Misconfigured(f"generation starts at 1, not at {self.generation}")


class Claim(NamedTuple):
    """What a row is inserted with. `occurrence` has at most 255 bytes, `payload_hash` has 16.

    `payload` is the record itself, where the gate stores it to redrive it (at most 16 MiB - 1).
    """

    digest: bytes
    occurrence: bytes | None
    payload_hash: bytes | None
    payload: bytes | None = None


class Row(NamedTuple):
    """A ledger row, as the store saw it at one moment of its own clock."""

    digest: bytes
    finished: bool
    occurrence: bytes | None
    owner: bytes
    payload_hash: bytes | None
    result: bytes | None
    lease_until: object
    """Opaque, compared by `take`; None once finished."""
    lease_left_seconds: float
    """Until the lease ends; negative when it has ended. 0 once finished."""
    age_seconds: float
    """Since the row was inserted, or, once finished, since it was finished."""
    payload: bytes | None = None
    """Filled by `open_rows` only: the other verbs read what the gate needs."""


class Take(NamedTuple):
    """One compare-and-set of a row's owner.

    `row` is the row as it was seen, or None where it is already this owner's and only `claim` is to be stored (the
    lease stays as it is). `claim`, where given, replaces occurrence, payload hash and payload.
    """

    digest: bytes
    row: Row | None
    claim: Claim | None = None


class Finish(NamedTuple):
    """What a row is finished with; the claim serves where the row has gone."""

    claim: Claim
    result: bytes | None = None


@runtime_checkable
class LedgerSession(Protocol):
    """The authority: one unique row a key.

    Every call may block for the time-outs of its recipe. Every call raises `Unavailable` (nothing applied) or
    `OutcomeUnknown` (perhaps applied), and may be repeated under the same owner until it has returned. Outside
    `transaction` each call is committed when it returns, and has not necessarily been undone when it raises.
    """

    @property
    def ledger_id(self) -> bytes:
        """16 random bytes, drawn when this scope was first opened: namespace of its cache entries."""
        ...

    def claim(self, claims: Sequence[Claim], *, owner: bytes, lease_seconds: float | None) -> Mapping[bytes, Row]:
        """Insert the rows that are absent, open under a lease, or finished where `lease_seconds` is None.

        Claims have distinct digests. Returns {} if all were inserted, else the rows of all digests as they are now:
        those that this call, or an earlier attempt of it, inserted are there too, under `owner`.
        """
        ...

    def read(self, digests: Sequence[bytes]) -> Mapping[bytes, Row]:
        """Return the rows that are there, from the primary. Says nothing about rows in transactions still open."""
        ...

    def take(self, takes: Sequence[Take], *, owner: bytes, lease_seconds: float) -> set[bytes]:
        """Make open rows this owner's, each only if owner and lease are still as seen; return those that now are.

        A new lease begins, or has ended already where `lease_seconds` is below zero. A row that is not returned was
        finished, released or taken by someone else: ask again.
        """
        ...

    def finish(self, finishes: Sequence[Finish], *, owner: bytes) -> set[bytes]:
        """Mark rows of this owner finished, keeping their claim; return the digests whose row has another owner.

        A row that has gone is inserted finished. Repeating it changes nothing.
        """
        ...

    def release(self, digests: Sequence[bytes], *, owner: bytes) -> None:
        """Delete open rows of this owner. Rows of others, and finished ones, stay."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Run claims, and the writes of a transactional sink, as one unit: commit at the end, roll back on any error.

        Raises `OutcomeUnknown` when the commit's reply was lost; running the unit again under the same owner tells.
        `Misconfigured` where the store cannot.
        """
        ...

    def close(self) -> None:
        """Give the connection back. Safe to repeat."""
        ...


@runtime_checkable
class Unguarded(Protocol):
    """A ledger session that goes on while its store is away."""

    unguarded: int
    """How many claims were made without it."""


@runtime_checkable
class Ledger(Protocol):
    """Recipe of a ledger. Finished rows are kept for `retention`; several processes may share it if `shared`."""

    @property
    def retention(self) -> timedelta: ...

    @property
    def shared(self) -> bool:
        """Whether it may be opened by processes on several machines."""
        ...

    def open(self, scope: Scope) -> LedgerSession:
        """Connect, prove what the guarantee needs, register the scope. Raises `Misconfigured` or `Unavailable`."""
        ...


class Entry(NamedTuple):
    """A finished row, as a cache keeps it. `age_seconds` since its finish is subtracted from its time to live."""

    occurrence: bytes | None
    payload_hash: bytes | None
    result: bytes | None
    age_seconds: float = 0.0


AnyRow = Row | Entry
"""A row of the ledger, or a finished one that the cache remembers."""


@runtime_checkable
class CacheSession(Protocol):
    """Finished rows seen lately. It may forget at any time, and never holds a row that was not committed.

    Calls raise `Unavailable` quickly (one short budget a call; while the store stays away, at once).
    """

    def get(self, digests: Sequence[bytes]) -> Mapping[bytes, Entry]:
        """Return the entries that are there; their ages are not known and stand as 0."""
        ...

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        """Keep entries until their time to live, counted from their finish, is over. Called after the commit only."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class TimedByRecord(Protocol):
    """A cache recipe with a rule for what lives shorter than its `ttl`."""

    @property
    def ttl(self) -> timedelta: ...

    @property
    def ttl_by(self) -> Callable[[Any], timedelta] | None: ...


@runtime_checkable
class Cache(Protocol):
    """Recipe of a cache. `ttl` must be shorter than the ledger's retention."""

    @property
    def ttl(self) -> timedelta: ...

    def open(self, ledger_id: bytes) -> CacheSession: ...


class Write(NamedTuple):
    """One record on its way to a sink. `digest` identifies the effect: send it along as idempotency key."""

    record: Any
    digest: bytes
    occurrence: bytes | None
    payload_hash: bytes | None = None

    @property
    def idempotency_key(self) -> str:
        """32 hexadecimal digits."""
        return self.digest.hex()


class Outcome(str, Enum):
    """What a sink answers for one record."""

    WRITTEN = "written"
    ALREADY = "already"
    """It recognised the key: an earlier call had been applied, this one changed nothing."""
    STALE = "stale"
    """It holds a newer version of what the record is about, or this one from another write; nothing was changed."""
    REJECTED = "rejected"
    """Refused for ever; this call was not applied."""
    UNAVAILABLE = "unavailable"
    """Not applied; may be sent again."""
    UNKNOWN = "unknown"
    """Perhaps applied."""


class Answer(NamedTuple):
    """A sink's answer for one record. `detail` explains a refusal.

    `result` is stored with the row and given to duplicates: bytes, or, with `results="json"`, what JSON can hold.

    `occurrence` is what a table with an occurrence column holds for a key that was ALREADY there.
    `retry_after_seconds` is how long the other side asked not to be asked, with UNAVAILABLE; 0: only the time of this
    call was too short for the record, and nothing is wrong.
    """

    outcome: Outcome
    result: Any = None
    detail: str = ""
    reason: Reason = "refused"
    occurrence: bytes | None = None
    retry_after_seconds: float | None = None


WRITTEN = Answer(Outcome.WRITTEN)
ALREADY = Answer(Outcome.ALREADY)
STALE = Answer(Outcome.STALE)


@runtime_checkable
class SinkSession(Protocol):
    """A live sink, used by one thread."""

    @property
    def store_id(self) -> bytes | None:
        """16 random bytes, namespace of cache entries, where the sink registered the scope itself: without a ledger."""
        ...

    def write(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer]:
        """Apply the writes; answer each, in order. Digests are distinct within a call.

        Must return or raise within `timeout_seconds`. Instead of answers it may raise, for all of them: `Unavailable`
        (nothing was applied), `Rejected` (one of them is refused, nothing was applied: only where the sink is
        `atomic`), `OutcomeUnknown`. Any other exception counts as `OutcomeUnknown`. A transactional sink writes on its
        ledger's connection and never commits.
        """
        ...

    def probe(self, writes: Sequence[Write], *, timeout_seconds: float) -> Sequence[Answer | None]:
        """Tell for each write whether its effect is there: an answer with the result if so, None if surely not."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ProvesFirst(Protocol):
    """A sink that can look at its target before the scope is registered, so that a wrong name does not stay with it."""

    def prove(self) -> None:
        """Raise what `open` would raise for a target that does not fit."""
        ...


@runtime_checkable
class KeepsNewest(Protocol):
    """A sink that keeps the newest version of each key."""

    @property
    def version_path(self) -> str | tuple[str, ...] | None:
        """Where a record's version stands; None where a function makes it, or where the sink keeps none."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Recipe of a sink."""

    @property
    def kind(self) -> SinkKind: ...

    @property
    def target(self) -> str:
        """Where it writes, without secrets: stored with the scope, so that a second sink under one scope is refused."""
        ...

    @property
    def timeout(self) -> timedelta:
        """The longest a `write` or `probe` call takes; a transactional sink's is that of its ledger."""
        ...

    @property
    def atomic(self) -> bool:
        """Whether a call that raises `Rejected` applied nothing: its batch may be split around the bad record."""
        ...

    @property
    def can_probe(self) -> bool: ...

    @property
    def remembers(self) -> timedelta | None:
        """How long it drops a second write by key; None: for ever. Means nothing for the other kinds."""
        ...

    @property
    def tells_occurrence(self) -> bool:
        """Whether an ALREADY answer carries the occurrence that wrote first."""
        ...

    def open(self, scope: Scope, ledger: LedgerSession | None) -> SinkSession:
        """Connect and prove what the guarantee needs. Raises `Misconfigured` or `Unavailable`.

        `ledger` is the gate's session; None where the gate has none: then a sink that needs a scopes table registers
        the scope itself.
        """
        ...
