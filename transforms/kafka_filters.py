"""A membership filter for each partition: it goes when the partition goes, and a new one starts cold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ..connectors.kafka_messages import Partition
from .membership.contract import MembershipFilter, MembershipRecipe
from .membership.hashing import Keys


class PartitionFilters:
    """The filters of the partitions that this member of the group holds.

    A producer's second send stands in the partition of the first as long as keys are partitioned alike. Where they
    are not, its filter says "never seen" and the ledger says otherwise: right all the same.
    """

    def __init__(self, recipe: MembershipRecipe) -> None:
        self._recipe = recipe
        self._filters: dict[Partition, MembershipFilter] = {}
        self._route: Mapping[bytes, Partition] = {}

    def route(self, digests: Mapping[bytes, Partition]) -> None:
        """Say in which partition each key of the next flush stands."""
        self._route = digests

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Forget the filters of partitions that went away."""
        for each in partitions:
            self._filters.pop(each, None)

    def query(self, keys: Keys) -> npt.NDArray[np.bool_]:
        answers = np.zeros(len(keys), dtype=np.bool_)
        for partition, places in self._places(keys):
            answers[places] = self._filter(partition).query(keys.take(places))
        return answers

    def add(self, keys: Keys) -> None:
        for partition, places in self._places(keys):
            self._filter(partition).add(keys.take(places))

    def _places(self, keys: Keys) -> Iterator[tuple[Partition, npt.NDArray[np.intp]]]:
        places: defaultdict[Partition, list[int]] = defaultdict(list)
        for place, digest in enumerate(keys.digests):
            places[self._route[digest]].append(place)
        for partition, found in places.items():
            yield partition, np.array(found, dtype=np.intp)

    @property
    def live(self) -> Collection[MembershipFilter]:
        return self._filters.values()

    def _filter(self, partition: Partition) -> MembershipFilter:
        found = self._filters.get(partition)
        if found is None:
            found = self._filters[partition] = self._recipe.create()
        return found

    def __repr__(self) -> str:
        return f"<PartitionFilters {', '.join(map(str, sorted(self._filters)))}>"
