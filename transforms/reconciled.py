"""What a pass of a `Reconciler` came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .results import AnyOutcome, Parked, Written
from .way_claimed import MISSING

NAMED = 20
"""How many keys a report names."""


@dataclass(slots=True)
class Reconciled:
    """What a pass found and did, in rows. Every listed one is under exactly one of the other heads."""

    listed: int = 0
    """Open, with lease and grace over."""
    there: int = 0
    """The sink had the effect, or a newer one: finished."""
    written: int = 0
    """Written from the stored record, then finished."""
    parked: int = 0
    """Left as they are: `on_replay="park"`, or refused, or without a record that could be written."""
    missing: int = 0
    """Surely not written, and without a record: they must be sent again."""
    elsewhere: int = 0
    """Taken, finished or released by somebody else meanwhile."""
    in_doubt: int = 0
    """The sink gave no certain answer, or there was no time left to send it: listed again when its lease is over."""
    troubled: int = 0
    """Not settled because a store or the sink was in trouble."""
    late_finishes: int = 0
    """Of those there or written: another one had the row by then."""
    older_generations: int = 0
    """Open rows of generations before: they are not touched."""
    keys: list[tuple[str, str]] = field(default_factory=list)
    """Digest and reason of the first rows that need somebody."""
    trouble: str = ""
    """The first trouble."""

    @property
    def is_vain(self) -> bool:
        """Whether trouble, or a sink that is too slow, left everything as it was."""
        return bool(self.troubled or self.in_doubt) and not (self.there or self.written)

    @property
    def clean(self) -> bool:
        """Whether nobody has to do anything."""
        return not (self.parked or self.missing or self.troubled)

    def note(self, outcome: AnyOutcome) -> None:
        """Count what became of one row."""
        if isinstance(outcome, Written):
            there = outcome.replayed or outcome.stale
            self.there += there
            self.written += not there
            return
        assert isinstance(outcome, Parked), outcome
        self.missing += outcome.detail == MISSING
        self.parked += outcome.detail != MISSING
        if len(self.keys) < NAMED:
            self.keys.append((outcome.idempotency_key, outcome.detail))

    def add(self, other: Reconciled) -> None:
        """Add up what a page came to."""
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.keys = [*self.keys, *other.keys][:NAMED]
        self.trouble = self.trouble or other.trouble

    def as_dict(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return asdict(self)


_COUNTED = (
    "listed",
    "there",
    "written",
    "parked",
    "missing",
    "elsewhere",
    "in_doubt",
    "troubled",
    "late_finishes",
    "older_generations",
)
