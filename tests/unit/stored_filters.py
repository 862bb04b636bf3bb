"""Filters stored for a gate, as `oncesink rebuild` does it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oncesink.connectors.contract import Sink
from oncesink.connectors.file_folder import FileFolder
from oncesink.transforms import Gate
from oncesink.transforms.cold_start import meaning_of, stored_recipe
from oncesink.transforms.gate import drop_scope, write_scope
from oncesink.transforms.membership.rebuilding import Rebuilding
from oncesink.transforms.prepare import Item, Preparer


def store(folder: Path, gate: Gate, sink: Sink | None, records: Iterable[Any], *, shards: int | None = None) -> None:
    """Store filters that know the keys of these records."""
    prepare = Preparer(gate, drop_scope(gate) if sink is None else write_scope(gate, sink))
    items = [prepare(record) for record in records]
    meaning = meaning_of(gate, shards=shards)
    recipe = stored_recipe(gate, meaning.shards)
    run = Rebuilding(FileFolder(str(folder)), recipe, meaning=meaning, source="a test")
    run.add([item.claim.digest for item in items if isinstance(item, Item)], last_id=len(items))
    run.finish()
