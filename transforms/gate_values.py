"""What is wrong with a gate's settings whatever the sink is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ..connectors.contract import Cache, Ledger, Sink
from ..connectors.errors import Misconfigured
from ..connectors.file_folder import checked_url
from ..connectors.wanted import check_durations
from .keys import ByStamp, KeyRecipe, OccurrenceRecipe
from .membership import MembershipRecipe, SharedRecipe
from .stored import check_stored

if TYPE_CHECKING:
    from .gate import Batch, Gate

CACHE_MARGIN = timedelta(seconds=60)
"""By how much a cache entry must expire before its row can be purged."""


def refuse_misfits(gate: Gate) -> None:
    """Raise `Misconfigured` for settings of the wrong kind, and for such as contradict each other."""
    check_durations(gate)
    _refuse_no_recipes(gate)
    _refuse_stamps(gate)
    _refuse_bad_values(gate)
    _refuse_long_cache(gate)
    _refuse_nothing_to_start(gate)
    _refuse_blind(gate)


def _refuse_no_recipes(gate: Gate) -> None:
    if not isinstance(gate.key, KeyRecipe):
        raise Misconfigured(f"key is a recipe such as Fields('order_id'), not {gate.key!r}")
    if not (gate.ledger is None or isinstance(gate.ledger, Ledger)):
        raise Misconfigured(f"ledger is a recipe such as MySQLLedger(url, retention=...), not {gate.ledger!r}")
    if not (gate.cache is None or isinstance(gate.cache, Cache)):
        raise Misconfigured(f"cache is a recipe such as RedisCache(url, ttl=...), not {gate.cache!r}")
    if not (gate.occurrence is None or isinstance(gate.occurrence, OccurrenceRecipe)):
        raise Misconfigured(
            f"occurrence is None or a recipe such as SourcePosition('orders', 'offset'), not {gate.occurrence!r}"
        )
    if not (gate.membership is None or isinstance(gate.membership, (MembershipRecipe, SharedRecipe))):
        raise Misconfigured(f"membership is None or a recipe such as Bloom(...), not {gate.membership!r}")


def _refuse_stamps(gate: Gate) -> None:
    if isinstance(gate.key, ByStamp) and not gate.key.stable_order:
        raise Misconfigured(
            "key=ByStamp(): after a replay in another order a record would bear another's stamp and be dropped for it;"
            " take a key that is in the record, or say ByStamp(stable_order=True) where each lane keeps its order"
        )
    if isinstance(gate.occurrence, ByStamp) and gate.occurrence.stable_order:
        raise Misconfigured("occurrence=ByStamp(stable_order=True): only a key asks for a stable order, remove it")


def check_whole(settings: Batch | Gate, *names: str) -> None:
    """Refuse settings that are no whole numbers. Raises `Misconfigured`."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Misconfigured(f"{type(settings).__name__}: {name} is a whole number, not {value!r}")


def _refuse_bad_values(gate: Gate) -> None:
    check_whole(gate, "generation", "shards")
    if not isinstance(gate.scope, str) or not gate.scope or len(gate.scope.encode()) > 64:
        raise Misconfigured(f"scope is a name of 1 to 64 bytes, not {gate.scope!r}")
    if gate.generation < 1 or gate.shards < 1:
        raise Misconfigured(f"generation={gate.generation} and shards={gate.shards} start at 1")
    if gate.on_replay not in (None, "write", "probe", "park"):
        raise Misconfigured(f"on_replay is 'write', 'probe' or 'park', not {gate.on_replay!r}")
    if gate.lease is not None and gate.lease <= timedelta(0):
        raise Misconfigured(f"lease={gate.lease} must be positive")
    if gate.grace is not None and gate.grace < timedelta(0):
        raise Misconfigured(f"grace={gate.grace} must not be negative")
    check_stored(gate.redrive, gate.results)
    for name, value in (("rejected", gate.rejected), ("parked", gate.parked)):
        if value not in ("raise", "output") and not isinstance(value, Sink):
            raise Misconfigured(f"{name} is 'raise', 'output' or a sink, not {value!r}")


def _refuse_nothing_to_start(gate: Gate) -> None:
    if gate.start_from is None:
        return
    url, own = checked_url(gate.start_from), gate.membership
    if not isinstance(own, MembershipRecipe):
        raise Misconfigured(f"start_from={url!r} does nothing with membership={own!r}: it is for filters of the job's")


def _refuse_blind(gate: Gate) -> None:
    if not gate.observe:
        return
    if gate.ledger is None:
        raise Misconfigured("observe=True needs a ledger: without one nothing is learned, and nothing can be counted")
    if gate.rejected == "raise":
        raise Misconfigured(
            "observe=True must not stop what is live for a record that it cannot read:"
            " rejected='output', or a sink for such records"
        )


def _refuse_long_cache(gate: Gate) -> None:
    if gate.cache is None or gate.ledger is None:
        return
    if gate.cache.ttl + CACHE_MARGIN > gate.ledger.retention:
        raise Misconfigured(
            f"a cache entry must expire {CACHE_MARGIN} before its row can be purged:"
            f" ttl={gate.cache.ttl}, retention={gate.ledger.retention}"
        )
