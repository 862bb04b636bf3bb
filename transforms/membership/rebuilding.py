"""A rebuild that can be killed at any moment: what is done is in files, with the id up to which it is done.

    progress.json     a manifest of the last checkpoint; there while a run is not at its end
    manifest.json     written at the end, naming the files of the last checkpoint

A checkpoint writes new files, then replaces progress.json, then removes the files of the one before: whoever dies
between two of these leaves either the old or the new one whole.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from zlib import crc32

from ...connectors.file_folder import FileFolder
from ..metrics import Counts
from ..retry import Backoff, repeat
from .contract import FilterUnusable, MembershipRecipe
from .filling import Filling
from .stored import MANIFEST, Manifest, Meaning, StoredFile, load_shard, parse_manifest

log = logging.getLogger("oncesink")

PROGRESS: Final = "progress.json"


class Rebuilding:
    """One run over one source into one folder. `last_id` and `keys` say how far an earlier attempt of it came.

    `recipe` is that of one shard's filter. `source` describes what is read: a run with other settings, or of another
    source, does not go on with this one.
    """

    def __init__(self, folder: FileFolder, recipe: MembershipRecipe, *, meaning: Meaning, source: str) -> None:
        self._folder = folder
        self._state, snapshots = self._found(meaning, source)
        self._filling = Filling(recipe, meaning.shards, snapshots)
        self.resumed = bool(snapshots)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._folder.url}, up to id {self._state.last_id}>"

    @property
    def last_id(self) -> int:
        return self._state.last_id

    @property
    def keys(self) -> int:
        return self._state.keys

    def add(self, digests: Sequence[bytes], ids: Sequence[int] = (), *, last_id: int) -> None:
        """Take the keys of one page, which ends at this id; `ids` are those of filters over numbers."""
        self._filling.add(digests, ids)
        self._state = replace(self._state, last_id=last_id, keys=self._state.keys + len(digests))

    def checkpoint(self) -> None:
        """Make what was added so far survive the end of this process."""
        self._filling.settle()
        old = self._state.files
        state = replace(self._state, checkpoint=self._state.checkpoint + 1)
        files = tuple(self._store(state, shard) for shard in range(state.meaning.shards))
        self._state = replace(state, files=files)
        self._write(PROGRESS, self._state.to_json())
        self._remove([each.name for each in old])

    def finish(self) -> Manifest:
        """Store the rest, and let workers have it; remove what the run before the last left."""
        self.checkpoint()
        before = self._manifest()
        kept = tuple(each.name for each in before.files) if before is not None else ()
        self._remove(before.before if before is not None else ())
        done = replace(self._state, before=kept)
        self._write(MANIFEST, done.to_json())
        self._folder.remove(PROGRESS)
        return done

    def _store(self, state: Manifest, shard: int) -> StoredFile:
        live = self._filling.filters[shard]
        content = live.to_bytes()
        name = _name(state.run, state.checkpoint, shard)
        self._write(name, content)
        keys = round(live.occupancy().estimated_keys)
        return StoredFile(name=name, bytes=len(content), crc32=crc32(content), keys=keys)

    def _found(self, meaning: Meaning, source: str) -> tuple[Manifest, list[bytes]]:
        """Return where to begin: at an earlier attempt's last checkpoint, if there is one that fits, or anew."""
        fresh = Manifest(
            meaning=meaning, source=source, last_id=0, keys=0, run=secrets.token_hex(6), checkpoint=0, files=()
        )
        stored = self._folder.read(PROGRESS)
        if stored is None:
            return fresh, []
        try:
            state = parse_manifest(stored)
            snapshots = self._snapshots(state, fresh)
        except FilterUnusable as error:
            log.warning("what an earlier attempt left cannot be used, starting over: %s", error)
            return fresh, []
        return (state, snapshots) if snapshots else (fresh, [])

    def _snapshots(self, state: Manifest, wanted: Manifest) -> list[bytes]:
        """Return the filters of an earlier attempt's last checkpoint; none where it is over, or was another's."""
        done = self._manifest()
        if done is not None and done.run == state.run:
            # It died between the manifest and the end: its files belong to the manifest now.
            self._folder.remove(PROGRESS)
            return []
        if wanted.meaning.difference(state.meaning) or wanted.source != state.source:
            log.warning("%s: begun for other settings, starting over", self._folder.url)
            self._remove([each.name for each in state.files])
            return []
        snapshots = [load_shard(self._folder, state, shard) for shard in range(state.meaning.shards)]
        # It may have died before it removed what its last checkpoint replaced.
        self._remove([_name(state.run, state.checkpoint - 1, shard) for shard in range(state.meaning.shards)])
        return snapshots

    def _manifest(self) -> Manifest | None:
        stored = self._folder.read(MANIFEST)
        try:
            return None if stored is None else parse_manifest(stored)
        except FilterUnusable as error:
            log.warning("the manifest that is replaced cannot be read, its files stay: %s", error)
            return None

    def _write(self, name: str, content: bytes) -> None:
        repeat(partial(self._folder.write, name, content), Backoff(), Counts())

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._folder.remove(name)


def _name(run: str, checkpoint: int, shard: int) -> str:
    return f"{run}-{checkpoint:05d}-{shard:05d}.filter"
