"""A filter in an engine's keyed state: a snapshot, and a log of what was added since.

An append costs eight bytes a new key. When the log is as long as the snapshot the two become a new snapshot; over such
a cycle each new key costs its log entry once and its share of the snapshot once, sixteen bytes together, however large
the filter is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .contract import FilterUnusable, MembershipFilter, MembershipRecipe
from .hashing import Keys


class FilterState:
    """The live filter of one shard, made from what its state holds.

    What is damaged, or was made for other settings, is put aside: its keys cost a conflict in the ledger and no more.
    `put_aside` says what was, one text a part, to be counted. Where the state holds nothing at all, `start` is asked
    for a snapshot from elsewhere, and `compact` is due at once to bring it into the state. Making it raises
    `FilterTooLarge` only. Not locked: it belongs to one thread.
    """

    __slots__ = ("_log_bytes", "_revision", "_started", "filter", "put_aside")

    def __init__(
        self,
        recipe: MembershipRecipe,
        *,
        snapshot: bytes | None = None,
        log: Iterable[bytes] = (),
        start: Callable[[], bytes | None] | None = None,
    ) -> None:
        chunks = list(log)
        self._started = False
        if start is not None and snapshot is None and not chunks:
            snapshot = start()
            self._started = snapshot is not None
        self.filter, aside = _load(recipe, snapshot)
        self._log_bytes = sum(map(len, chunks))
        self._revision = 0
        self.put_aside = (*aside, *_replay(self.filter, chunks))

    def __repr__(self) -> str:
        return f"<FilterState {self.filter!r}, {self._log_bytes} bytes of log, {len(self.put_aside)} put aside>"

    def record(self, keys: Keys) -> bytes:
        """Add keys, distinct ones, and return what has to be appended to the log: nothing for keys that were known."""
        entries = self.filter.record(keys)
        self._log_bytes += len(entries)
        return entries

    @property
    def due(self) -> bool:
        """Tell whether to compact.

        The log is as long as a snapshot or no longer tells what the filter is, what was put aside still lies there, or
        the state lacks what the filter began with.
        """
        rearranged = self._revision != self.filter.revision
        long = self._log_bytes >= self.filter.snapshot_bytes
        return long or rearranged or self._started or bool(self.put_aside)

    def compact(self) -> bytes:
        """Return the new snapshot. The caller writes it and clears the log, in one step of its state."""
        self._log_bytes = 0
        self._revision = self.filter.revision
        self._started = False
        self.put_aside = ()
        return self.filter.to_bytes()


def _load(recipe: MembershipRecipe, snapshot: bytes | None) -> tuple[MembershipFilter, list[str]]:
    """Return the filter, and why it is empty if it should not be."""
    if snapshot is None:
        return recipe.create(), []
    try:
        return recipe.load(snapshot), []
    except FilterUnusable as error:
        # A filter that does not fit into memory is refused here a second time, and that is raised.
        return recipe.create(), [f"snapshot: {error}"]


def _replay(live: MembershipFilter, chunks: list[bytes]) -> list[str]:
    """Replay whole chunks in one call, since an engine may keep a chunk an entry. Return what was wrong."""
    broken = [chunk for chunk in chunks if len(chunk) % live.entry_bytes]
    whole = [chunk for chunk in chunks if not len(chunk) % live.entry_bytes] if broken else chunks
    aside = [f"log: a chunk of {len(chunk)} bytes, and entries have {live.entry_bytes}" for chunk in broken]
    try:
        live.replay(b"".join(whole))
    except FilterUnusable as error:
        aside.append(f"log: {error}")
    return aside
