"""What an examination found, as values and in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from ..contract import SinkKind


class Flaw(str, Enum):
    """A promise of the contract that a sink breaks."""

    HALF_APPLIES = "half-applies"
    """An error says that nothing was applied, and part of the batch is there."""
    LIES = "lies about the outcome"
    """An answer does not fit what is there."""
    OVERRUNS = "blocks past its time-out"
    """A call was still running when its time was up."""
    NOT_CONCURRENT = "is not safe with several sessions at once"
    """Effects are lost, doubled or mixed up where sessions write at the same time."""
    BARE_ERRORS = "raises bare exceptions"
    """An error is none of this library's, so that it cannot be told what was applied."""
    TRUNCATES_KEYS = "drops by a part of the key"
    """Digests that begin or end alike are taken for one."""
    DOUBLES = "does not drop a second write by key"
    """It says that it does."""
    LOSES = "loses what a dead attempt had begun"
    """A repetition does not bring about the effect."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One flaw, as it showed in one trial."""

    flaw: Flaw
    trial: str
    what: str

    def __str__(self) -> str:
        return f"{self.flaw.value}: {self.what} ({self.trial})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a sink said of itself, and what it did. `None` stands for what could not be tried; `remarks` say why.

    `truthful`: answers fit what is there. `in_time`: no call outlasted its time. `typed`: errors are this library's.
    `concurrent`: several sessions at once do no harm. `drops_by_key`: a second write of a digest changes nothing.
    `whole_key`: and it goes by the whole digest. `all_or_nothing`: a call that is killed leaves all of its batch or
    nothing. `survives`: what a killed call left undone is done by its repetition.
    """

    target: str
    kind: SinkKind
    truthful: bool | None = None
    in_time: bool | None = None
    typed: bool | None = None
    concurrent: bool | None = None
    drops_by_key: bool | None = None
    whole_key: bool | None = None
    all_or_nothing: bool | None = None
    survives: bool | None = None
    slowest_seconds: float = 0.0
    findings: Sequence[Finding] = field(default_factory=tuple)
    remarks: Sequence[str] = field(default_factory=tuple)

    @property
    def clean(self) -> bool:
        """Whether no flaw was found."""
        return not self.findings

    @property
    def flaws(self) -> frozenset[Flaw]:
        """The kinds of flaws that were found."""
        return frozenset(each.flaw for each in self.findings)

    @property
    def guarantee(self) -> str:
        """What a gate can make of this sink, in one line."""
        if not self.clean:
            return "none, until the findings are mended"
        if self.kind is SinkKind.TRANSACTIONAL:
            return "exactly once, together with its ledger"
        if self.kind is SinkKind.DROPS_BY_KEY:
            return "once, for as long as it remembers keys"
        if self.drops_by_key:
            return "once, but for records in doubt; it seems to drop by key: say so, and there are none"
        return "once, but for records in doubt, for which on_replay decides"

    def __str__(self) -> str:
        lines = [f"{self.target}: says {self.kind.value}", *(_line(*each) for each in self._facts())]
        lines += [f"  {'note':<11}{each}" for each in self.remarks]
        lines += [f"  {'FLAW':<11}{each}" for each in self.findings] or ["  no flaw was found"]
        return "\n".join([*lines, f"behind a gate: {self.guarantee}"])

    def _facts(self) -> list[tuple[bool | None, str]]:
        return [
            (self.truthful, "its answers are truthful"),
            (self.in_time, f"it keeps its time-out (the slowest call took {self.slowest_seconds:.2f} s)"),
            (self.typed, "it raises typed errors only"),
            (self.concurrent, "several sessions may write at once"),
            (self.drops_by_key, "a second write of a key changes nothing"),
            (self.whole_key, "it goes by the whole key"),
            (self.all_or_nothing, "a killed call leaves all of its batch or nothing"),
            (self.survives, "what a killed call left undone is done by its repetition"),
        ]


def _line(value: bool | None, text: str) -> str:  # noqa: FBT001 - a fact is a truth value
    shown = {True: "yes", False: "no", None: "not tried"}[value]
    return f"  {shown:<11}{text}"
