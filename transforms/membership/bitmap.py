"""A bit for each id: exact, for keys that are numbers. Its settings, and the live filter over pages of bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...connectors.errors import Rejected
from ...connectors.rows import Path, field
from .bitmap_snapshot import ENTRY, ENTRY_TAG, HEADER, Header, read, write
from .contract import FilterDamaged, FilterMismatch, FilterUnusable, Occupancy
from .hashing import INT64, Keys
from .memory import require_memory
from .pages import EXTRA_PAGES, PAGE_BYTES, PAGE_IDS, Indexes, Pages


@dataclass(frozen=True, kw_only=True, slots=True)
class Bitmap:
    """Settings of a bitmap over the ids in a field, which are integers of 64 bits from `base` on.

    A record whose `id` is none, or below the base, is rejected. The id should follow from the record's key, else a new
    key with a known id costs a look.

    `capacity` is how many ids may lie between the lowest and the highest that are remembered, in pages that are taken
    when they are first needed: 32 KiB for 262,144 ids. When the last page is taken the lowest ids are given up for
    higher ones: from then on they are perhaps known.
    """

    id: Path
    base: int = 0
    capacity: int
    shards: int = 1
    """Set by the engines: a record goes to shard `id % shards`, and each shard's filter keeps every such id."""

    def __post_init__(self) -> None:
        if type(self.base) is not int or not 0 <= self.base <= INT64.max:
            raise FilterUnusable(f"base={self.base!r} must be the lowest id: a whole number, at least 0")
        if type(self.capacity) is not int or self.capacity < 1:
            raise FilterUnusable(f"capacity={self.capacity!r} must be a whole number of ids, at least 1")
        if type(self.shards) is not int or self.shards < 1:
            raise FilterUnusable(f"shards={self.shards!r} must be a whole number, at least 1")

    def __str__(self) -> str:
        return self.description

    @property
    def description(self) -> str:
        name = self.id if isinstance(self.id, str) else ".".join(self.id)
        return f"bitmap(id={name}, base={self.base}, capacity={self.capacity}, shards={self.shards})"

    @property
    def pages(self) -> int:
        """Return how many pages there may be; ids need not begin where a page does."""
        return -(-self.capacity // PAGE_IDS) + 1

    @property
    def memory_bytes(self) -> int:
        return (self.pages + EXTRA_PAGES) * PAGE_BYTES

    def number_of(self, record: Any) -> int:
        number = field(record, self.id)
        if type(number) is not int:
            if not isinstance(number, np.integer):
                raise Rejected("wrong_type", f"id {self.id!r} is {number!r:.80}, a {type(number).__name__}: no integer")
            number = int(number)
        if not self.base <= number <= INT64.max:
            raise Rejected("out_of_range", f"id {self.id!r} is {number}, not from {self.base} to {INT64.max}")
        return number

    def for_shards(self, shards: int) -> Bitmap:
        return replace(self, shards=shards)

    def create(self) -> BitmapFilter:
        require_memory(self.memory_bytes, purpose=str(self))
        return BitmapFilter(self, Pages(most=self.pages))

    def load(self, snapshot: bytes) -> BitmapFilter:
        header, numbers, bits = read(snapshot)
        if (header.base, header.shards, header.most) != (self.base, self.shards, self.pages):
            stored = f"base={header.base}, shards={header.shards}, {header.most} pages"
            raise FilterMismatch(f"the stored filter was made for {stored}, and {self} is asked for: rebuild it")
        require_memory(self.memory_bytes, purpose=str(self))
        return BitmapFilter(self, Pages.of(numbers, bits, most=self.pages, floor=header.floor))


class BitmapFilter:
    """A live bitmap, made by `Bitmap.create` or `Bitmap.load`. Not locked: it belongs to one thread."""

    __slots__ = ("_pages", "recipe")

    def __init__(self, recipe: Bitmap, pages: Pages) -> None:
        self.recipe = recipe
        self._pages = pages

    def __repr__(self) -> str:
        return f"<BitmapFilter {self.recipe}, {len(self._pages)} of {self.recipe.pages} pages>"

    @property
    def entry_bytes(self) -> int:
        return ENTRY.itemsize

    @property
    def revision(self) -> int:
        return 0

    @property
    def snapshot_bytes(self) -> int:
        return HEADER.size + len(self._pages) * (8 + PAGE_BYTES)

    def query(self, keys: Keys) -> npt.NDArray[np.bool_]:
        return self._pages.query(self._indexes(keys.integers))

    def add(self, keys: Keys) -> None:
        self._pages.add(self._indexes(keys.integers))

    def record(self, keys: Keys) -> bytes:
        ids = keys.integers
        indexes = self._indexes(ids)
        fresh = ~self._pages.query(indexes)
        if not fresh.any():
            return b""
        self._pages.add(indexes[fresh])
        return _entries(ids[fresh])

    def entries(self, keys: Keys) -> bytes:
        return _entries(keys.integers)

    def replay(self, entries: bytes) -> None:
        if len(entries) % ENTRY.itemsize:
            raise FilterDamaged(f"a log of {len(entries)} bytes is no whole number of {ENTRY.itemsize}-byte entries")
        found = np.frombuffer(entries, dtype=ENTRY)
        if (found["tag"] != ENTRY_TAG).any() or (found["id"] < self.recipe.base).any():
            raise FilterDamaged("a log that does not hold ids: it was written for another kind of filter")
        self._pages.add(self._indexes(found["id"].astype(np.int64)))

    def occupancy(self) -> Occupancy:
        set_bits = self._pages.set_bits()
        most = self.recipe.pages * PAGE_IDS
        return Occupancy(
            capacity_keys=most,
            estimated_keys=float(set_bits),
            estimated_error_rate=0.0,
            set_bits=set_bits,
            bits=most,
        )

    def to_bytes(self) -> bytes:
        pages, recipe = self._pages, self.recipe
        header = Header(base=recipe.base, shards=recipe.shards, most=recipe.pages, floor=pages.floor, pages=len(pages))
        return write(header, pages.numbers, pages.stored())

    def _indexes(self, ids: npt.NDArray[np.int64]) -> Indexes:
        indexes = ids - self.recipe.base if self.recipe.base else ids
        return indexes if self.recipe.shards == 1 else indexes // self.recipe.shards


def _entries(ids: npt.NDArray[np.int64]) -> bytes:
    entries = np.empty(len(ids), dtype=ENTRY)
    entries["tag"] = ENTRY_TAG
    entries["id"] = ids
    return entries.tobytes()
