"""One round of a claimed batch: what is to be done under one owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..connectors.contract import Entry, Finish, Row
from .decide import OnReplay
from .flush import Pass
from .groups import Group

Doubt = tuple[Group, Row, OnReplay]


class Done(NamedTuple):
    """An effect that is surely there, or `stale`. `mine`: it is the leader's; else the row's occurrence caused it."""

    group: Group
    finish: Finish
    mine: bool
    replayed: bool
    stale: bool = False


@dataclass(slots=True)
class Round:
    """One owner, and what is to be done under it before `deadline` (monotonic seconds)."""

    owner: bytes
    deadline: float
    it: Pass
    write: list[Group] = field(default_factory=list)
    doubt: list[Doubt] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    entries: dict[bytes, Entry] = field(default_factory=dict)
    seen: dict[bytes, Entry] = field(default_factory=dict)
    """Rows that were finished before, with their age when they were read."""
