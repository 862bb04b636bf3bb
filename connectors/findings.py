"""What a look at a server, its tables or its settings brought up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .errors import Misconfigured


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is not as it should be. An `error` breaks the guarantee, a `warning` narrows or endangers it."""

    severity: Literal["error", "warning"]
    what: str
    todo: str

    def __str__(self) -> str:
        return f"{self.what}: {self.todo}"


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Raise `Misconfigured` that names every error among the findings, if there is one."""
    errors = [str(each) for each in findings if each.severity == "error"]
    if errors:
        raise Misconfigured("; ".join(errors))
