"""How much memory this process may still take, and the refusal of what is larger.

Where memory is overcommitted an allocation always succeeds, and the process is killed when it touches the pages: so the
check comes first.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from .contract import FilterTooLarge


def require_memory(size_bytes: int, *, purpose: str) -> None:
    """Raise `FilterTooLarge` unless so much memory is to be had."""
    available = available_bytes()
    if size_bytes > available:
        advice = "lower its capacity, raise its error rate, or give the process more"
        raise FilterTooLarge(f"{purpose} needs {_mib(size_bytes)}, and {_mib(available)} are available: {advice}")


def available_bytes(root: Path = Path("/")) -> int:
    """Return the least of what machine, control groups and address space leave. `root` holds proc and sys."""
    return max(0, min((*_machine(root), *_groups(root), *_address_space(root))))


def _machine(root: Path) -> Iterator[int]:
    lines = _lines(root / "proc/meminfo")
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    yield found[0] if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _groups(root: Path) -> Iterator[int]:
    """Yield what each control group above this process leaves: version 2, and the memory controller of version 1."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top = root / "sys/fs/cgroup" / controllers
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        group = top / path.lstrip("/")
        for each in (group, *group.parents[: len(group.parts) - len(top.parts)]):
            yield from _group(each, *names)


def _group(folder: Path, limit_name: str, usage_name: str) -> Iterator[int]:
    limit, usage = _lines(folder / limit_name), _lines(folder / usage_name)
    if not limit or not usage or limit[0] == "max":
        return
    # Pages of files that were read some time ago count as used and are given back when memory is short.
    stat = dict(line.split() for line in _lines(folder / "memory.stat"))
    reclaimable = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    yield int(limit[0]) - int(usage[0]) + reclaimable


def _address_space(root: Path) -> Iterator[int]:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    statm = _lines(root / "proc/self/statm")
    if soft != resource.RLIM_INFINITY and statm:
        yield soft - int(statm[0].split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="ascii", errors="replace").splitlines() if path.is_file() else []


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.1f} MiB"
