"""The decision table: what one row means for one record. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ..connectors.contract import AnyRow, Claim, Row, SinkKind, Use

OnReplay = Literal["write", "probe", "park"]


class Verdict(Enum):
    """What is to be done with a record, given the row of its key."""

    WRITE = "write"
    """This flush's own claim, and no call was made for it yet."""
    PASS = "pass"
    CONFIRMED = "confirmed"
    """Finished under this flush's owner: the reply had been lost."""
    REPLAYED = "replayed"
    """An earlier attempt of this very delivery finished it."""
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    """Finished by another occurrence, with another content."""
    WAIT = "wait"
    """In doubt, and the lease still runs."""
    IN_DOUBT = "in doubt"
    """The owner may be replaced by compare-and-set; then `replay` says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What a verdict depends on besides the row and the record. Times in seconds."""

    use: Use
    kind: SinkKind = SinkKind.EXTERNAL
    on_replay: OnReplay | None = None
    lease_seconds: float = 30.0
    grace_seconds: float = 10.0
    remembers_seconds: float | None = None

    def drops(self, row: Row) -> bool:
        """Whether the sink surely still drops a second write of this open row's key, for as long as a call may take."""
        if self.kind is not SinkKind.DROPS_BY_KEY:
            return False
        return self.remembers_seconds is None or row.age_seconds + self.lease_seconds <= self.remembers_seconds

    def replay(self, row: Row) -> OnReplay:
        """Return what follows once the owner of a row in doubt was replaced."""
        if self.drops(row) or self.on_replay is None:
            return "write"
        return self.on_replay


def decide(row: AnyRow, claim: Claim, owner: bytes, rules: Rules) -> Verdict:  # noqa: PLR0911 - a table
    """Judge a record by the row of its key.

    A replay does not prove that the earlier attempt is dead, so it goes on at once only where a second write is
    harmless.
    """
    mine = claim.occurrence is not None and claim.occurrence == row.occurrence
    own = isinstance(row, Row) and row.owner == owner
    if rules.use is Use.DROP:
        return Verdict.PASS if mine or own else Verdict.DUPLICATE
    if not isinstance(row, Row) or row.finished:
        if own:
            return Verdict.CONFIRMED
        if mine:
            return Verdict.REPLAYED
        return Verdict.CONFLICT if conflicts(row.payload_hash, claim.payload_hash) else Verdict.DUPLICATE
    if own:
        return Verdict.WRITE
    if row.lease_left_seconds + rules.grace_seconds < 0:
        return Verdict.IN_DOUBT
    return Verdict.IN_DOUBT if mine and rules.drops(row) else Verdict.WAIT


def conflicts(stored: bytes | None, arrived: bytes | None) -> bool:
    """Whether two payload hashes are both known and differ."""
    return stored != arrived and stored is not None and arrived is not None
