"""Rows that a writer left open, and a reconciler that comes by when their leases are over."""

from __future__ import annotations

from typing import Any

from oncesink.connectors.faults import Fault
from oncesink.transforms import Reconciled, Reconciler
from oncesink.transforms.retry import Immediately

from tests.unit.scene import ATTEMPTS, GRACE_SECONDS, LEASE_SECONDS, Scene

OVER_SECONDS = LEASE_SECONDS + GRACE_SECONDS + 1


def external(on_replay: str = "probe", *, redrive: Any = "json", kind: Any = "external", **settings: Any) -> Scene:
    """Return a scene whose rows hold their records."""
    if kind != "external":
        return Scene(kind, {"redrive": redrive, **settings})
    return Scene(kind, {"on_replay": on_replay, "parked": "output", "redrive": redrive, **settings})


def left_open(scene: Scene, *records: Any, applied: bool, over: bool = True) -> Scene:
    """Let a writer die in the sink's call, before or after it was applied; then let lease and grace go by."""
    scene.on("sink", "write", Fault.CRASH_AFTER if applied else Fault.CRASH_BEFORE)
    scene.dies(*records)
    if over:
        scene.clock.sleep(OVER_SECONDS)
    return scene


def reconciler(scene: Scene, **settings: Any) -> Reconciler:
    """Open a reconciler of a scene."""
    usual: dict[str, Any] = {"attempts": Immediately(ATTEMPTS), "metrics": scene.counts, "seed": 1}
    return Reconciler(scene.gate, scene.sink, clock=scene.clock, **{**usual, **settings})


def run(scene: Scene) -> Reconciled:
    """Let a new one make a pass."""
    with reconciler(scene) as one:
        return one.run()
