"""What comes out of a writer: every record, under exactly one outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..connectors.errors import Reason


class Written(NamedTuple):
    """The effect is there. `replayed`: an earlier attempt, or another copy in the same batch, caused it.

    `stale`: it has no effect, since the sink holds a newer version of what the record is about.
    """

    record: Any
    replayed: bool = False
    result: Any = None
    stale: bool = False


class Passed(NamedTuple):
    """`DropDuplicates` let it through."""

    record: Any


class Duplicate(NamedTuple):
    """Another occurrence of the key is finished; `result` is what was stored with it."""

    record: Any
    result: Any = None


class Refused(NamedTuple):
    """Rejected for ever, and why."""

    record: Any
    reason: Reason
    detail: str = ""


class Parked(NamedTuple):
    """Perhaps written; a person decides. `idempotency_key` is what the sink was sent, in 32 hexadecimal digits."""

    record: Any
    idempotency_key: str
    detail: str = ""


AnyOutcome = Written | Passed | Duplicate | Refused | Parked


@dataclass(slots=True)
class Results:
    """The outcomes of one `write`, in the order in which they became certain."""

    written: list[Written] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    rejected: list[Refused] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self._lists().values()))

    def collect(self, outcomes: Iterable[AnyOutcome]) -> None:
        """Put each outcome where its kind belongs."""
        lists = self._lists()
        for outcome in outcomes:
            lists[type(outcome)].append(outcome)

    def _lists(self) -> dict[type[Any], list[Any]]:
        return {
            Written: self.written,
            Duplicate: self.duplicates,
            Refused: self.rejected,
            Parked: self.parked,
            Passed: self.passed,
        }

    def __repr__(self) -> str:
        kinds = ("written", "passed", "duplicates", "rejected", "parked")
        return f"Results({', '.join(f'{kind}={len(getattr(self, kind))}' for kind in kinds if getattr(self, kind))})"
