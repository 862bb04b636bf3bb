"""Filters in files, one a shard, with a manifest that says what they are: written by `rebuild`, loaded by workers.

    manifest.json                          replaced in one step once every file it names is there
    <run>-<checkpoint>-<shard>.filter      as the filter's recipe wrote it

Who reads the manifest finds files that are whole and belong together. Those of the manifest before it stay until the
next run ends, for workers that have just read it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final
from zlib import crc32

from ...connectors.file_folder import FileFolder
from .contract import FilterDamaged, FilterMismatch, FilterUnusable, MembershipRecipe

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """One shard's file; `keys` is an estimate of its filter."""

    name: str
    bytes: int
    crc32: int
    keys: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    """What filters are made for: others are foreign."""

    scope: str
    generation: int
    shards: int
    filter: str
    """The description of the recipe: kind and settings."""

    def difference(self, other: Meaning) -> str:
        """Name what is not the same, with both values; nothing where all is."""
        mine, others = asdict(self), asdict(other)
        return ", ".join(f"{name}={others[name]} and not {mine[name]}" for name in mine if mine[name] != others[name])


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a folder of filters holds. `last_id` is the highest id of the source that went in, `keys` how many rows."""

    meaning: Meaning
    source: str
    last_id: int
    keys: int
    run: str
    checkpoint: int
    files: tuple[StoredFile, ...]
    before: tuple[str, ...] = ()
    """Files of the run before, to be removed at the end of the next one."""

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()


def parse_manifest(stored: bytes) -> Manifest:
    """Return what `to_json` wrote. Raises `FilterDamaged`."""
    try:
        fields: dict[str, Any] = json.loads(stored)
        version = fields.pop("format")
        if version != FORMAT:
            raise FilterDamaged(f"a manifest of format {version}, and this release reads {FORMAT}: upgrade, or rebuild")
        meaning = Meaning(**fields.pop("meaning"))
        files = tuple(StoredFile(**each) for each in fields.pop("files"))
        if len(files) != meaning.shards:
            raise FilterDamaged(f"a manifest that names {len(files)} files for {meaning.shards} shards: rebuild it")
        return Manifest(meaning=meaning, files=files, before=tuple(fields.pop("before")), **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FilterDamaged(f"not a manifest of oncesink: {error}") from error


def load_manifest(folder: FileFolder, meaning: Meaning) -> Manifest:
    """Return a folder's manifest. Raises `FilterUnusable` where there is none, and where it is of something else."""
    stored = folder.read(MANIFEST)
    if stored is None:
        raise FilterUnusable(f"{folder.url} has no {MANIFEST}: run `oncesink rebuild --to` there")
    manifest = parse_manifest(stored)
    difference = meaning.difference(manifest.meaning)
    if difference:
        raise FilterMismatch(f"the filters at {folder.url} are made for {difference}: rebuild them")
    return manifest


def load_shard(folder: FileFolder, manifest: Manifest, shard: int) -> bytes:
    """Return one shard's snapshot. Raises `FilterDamaged` where it is missing or altered."""
    file = manifest.files[shard]
    content = folder.read(file.name)
    if content is None:
        raise FilterDamaged(f"{folder.url} lacks {file.name}, which its manifest names: rebuild it")
    if len(content) != file.bytes or crc32(content) != file.crc32:
        raise FilterDamaged(f"{folder.url}: {file.name} is not what its manifest says: rebuild it")
    return content


def load_filters(url: str, recipe: MembershipRecipe, *, scope: str, generation: int, shards: int) -> list[Any]:
    """Return the live filter of every shard. Raises `FilterUnusable` for anything that is missing or does not fit."""
    folder = FileFolder(url)
    meaning = Meaning(scope=scope, generation=generation, shards=shards, filter=recipe.description)
    manifest = load_manifest(folder, meaning)
    return [recipe.load(load_shard(folder, manifest, shard)) for shard in range(shards)]
