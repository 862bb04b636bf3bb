"""What holds in each cell of the crash table, in words; `docs/guarantees.md` shows it, the simulation counts it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .cells import Kind, Situation, Step, impossible

_NOTHING_YET = {Step.ARRIVED, Step.FILTER_ASKED, Step.CACHE_ASKED}
_AFTER_FINISH = {Step.FINISHED, Step.CACHE_FILLED, Step.FILTER_FILLED}

_CLAIMED = {
    Kind.DROP: "passes",
    Kind.TRANSACTIONAL: "undone",
    Kind.DROPS_BY_KEY: "goes on",
    Kind.WRITE: "waits, written",
    Kind.PROBE: "waits, asked, written",
    Kind.PARK: "waits, **parked: not there**",
    Kind.REDIS: "as its sink",
}
_WRITTEN = {
    Kind.TRANSACTIONAL: "undone",
    Kind.DROPS_BY_KEY: "goes on: ALREADY",
    Kind.WRITE: "waits, **twice**",
    Kind.PROBE: "waits, asked: there",
    Kind.PARK: "waits, parked",
    Kind.REDIS: "as its sink",
}
_AFTER_LEASE = {
    (Kind.DROPS_BY_KEY, Step.CLAIMED): "goes on",
    (Kind.DROPS_BY_KEY, Step.WRITTEN): "goes on: ALREADY",
    (Kind.WRITE, Step.CLAIMED): "written",
    (Kind.WRITE, Step.WRITTEN): "**twice**",
    (Kind.PROBE, Step.CLAIMED): "asked, written",
    (Kind.PROBE, Step.WRITTEN): "asked: there",
    (Kind.PARK, Step.CLAIMED): "**parked: not there**",
    (Kind.PARK, Step.WRITTEN): "parked",
    (Kind.REDIS, Step.CLAIMED): "as its sink",
    (Kind.REDIS, Step.WRITTEN): "as its sink",
}
_BY_RECONCILER = {
    (Kind.DROPS_BY_KEY, Step.CLAIMED): "sent, replayed",
    (Kind.DROPS_BY_KEY, Step.WRITTEN): "sent: ALREADY, replayed",
    (Kind.WRITE, Step.CLAIMED): "written, replayed",
    (Kind.WRITE, Step.WRITTEN): "**twice**, replayed",
    (Kind.PROBE, Step.CLAIMED): "asked, left or written",
    (Kind.PROBE, Step.WRITTEN): "asked, replayed",
    (Kind.PARK, Step.CLAIMED): "left, **parked: not there**",
    (Kind.PARK, Step.WRITTEN): "left, parked",
    (Kind.REDIS, Step.CLAIMED): "as its sink",
    (Kind.REDIS, Step.WRITTEN): "as its sink",
}
_LOST_REPLY = {
    Step.CACHE_ASKED: "done without",
    Step.CLAIMED: "repeated",
    Step.FINISHED: "repeated",
    Step.CACHE_FILLED: "done without",
}
_LOST_WRITE = {
    Kind.TRANSACTIONAL: "run again",
    Kind.DROPS_BY_KEY: "sent again",
    Kind.WRITE: "waits, **twice**",
    Kind.PROBE: "waits, asked",
    Kind.PARK: "waits, parked",
    Kind.REDIS: "as its sink",
}
_BESIDE = {
    Kind.DROP: "one passes",
    Kind.TRANSACTIONAL: "one commits",
    Kind.DROPS_BY_KEY: "sink drops one",
}


def holds(kind: Kind, step: Step, situation: Situation) -> str:
    """Return what holds in a cell; a dash where it cannot occur."""
    if impossible(kind, step, situation):
        return "-"
    if situation is Situation.LEASE_OVER:
        return _AFTER_LEASE[kind, step]
    if situation is Situation.RECONCILER:
        return _BY_RECONCILER[kind, step]
    return _SPECIAL.get(situation, _again)(kind, step)


def _again(kind: Kind, step: Step) -> str:
    if step in _NOTHING_YET:
        return "new"
    if step in _AFTER_FINISH:
        return "passes" if kind is Kind.DROP else "replayed"
    return _CLAIMED[kind] if step is Step.CLAIMED else _WRITTEN[kind]


def _with_a_zombie(kind: Kind, step: Step) -> str:
    if step in _AFTER_FINISH:
        return _again(kind, step)
    if step in _NOTHING_YET:
        return "first claims"
    return _BESIDE.get(kind, _again(kind, step))


def _with_a_duplicate(kind: Kind, step: Step) -> str:
    if step in _AFTER_FINISH:
        return "it is a duplicate"
    if step in _NOTHING_YET or kind is Kind.TRANSACTIONAL:
        return "first claims"
    return "it is a duplicate" if kind is Kind.DROP else "it waits, or is a duplicate"


def _redis_lost(kind: Kind, step: Step) -> str:
    if kind is not Kind.REDIS or step in _NOTHING_YET:
        return _again(kind, step)
    return "new" if step is Step.CLAIMED else "**new: twice**"


def _redis_set_back(kind: Kind, step: Step) -> str:
    if kind is not Kind.REDIS or step in _NOTHING_YET:
        return _again(kind, step)
    return "as its row was" if step is Step.CLAIMED else "as its row was: **perhaps twice**"


def _reply_lost(kind: Kind, step: Step) -> str:
    if step is Step.WRITTEN:
        return _LOST_WRITE[kind]
    if kind is Kind.TRANSACTIONAL and step in {Step.CLAIMED, Step.FINISHED}:
        return "run again"
    return _LOST_REPLY[step]


_SPECIAL: dict[Situation, Callable[[Kind, Step], str]] = {
    Situation.ZOMBIE: _with_a_zombie,
    Situation.REDIS_LOST: _redis_lost,
    Situation.REDIS_OLD_COPY: _redis_set_back,
    Situation.REPLY_LOST: _reply_lost,
    Situation.DUPLICATE_ELSEWHERE: _with_a_duplicate,
}


def render() -> str:
    """Return the tables in Markdown, one for each kind."""
    return "\n\n".join(_of(kind) for kind in Kind)


def _of(kind: Kind) -> str:
    steps = [step for step in Step if not all(impossible(kind, step, situation) for situation in Situation)]
    rows: dict[tuple[str, ...], list[str]] = {}
    for situation in Situation:
        rows.setdefault(tuple(holds(kind, step, situation) for step in steps), []).append(situation.label)
    lines = [
        f"#### {kind.label[0].upper()}{kind.label[1:]}",
        "",
        f"| it comes again with | {' | '.join(step.label for step in steps)} |",
        "|---" * (len(steps) + 1) + "|",
        *(f"| {'; '.join(those)} | {' | '.join(cells)} |" for cells, those in rows.items() if set(cells) != {"-"}),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{render()}\n")
