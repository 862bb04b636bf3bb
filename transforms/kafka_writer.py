"""A writer for messages in hand: decodes them, and keeps a membership filter for each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..connectors.errors import Misconfigured, Rejected
from ..connectors.kafka_messages import KafkaMessage, Partition, raw_record
from ..connectors.rows import RECORD_ERRORS
from .flush import Flushed
from .kafka_filters import PartitionFilters
from .kafka_hand import Held
from .membership import MembershipRecipe
from .prepare import Item
from .results import Refused, Results
from .writer import OnceWriter

Decode = Callable[[KafkaMessage], Any]


def decoded(messages: Iterable[KafkaMessage], decode: Decode) -> list[Held]:
    """Return each message with its record; one that cannot be read is refused, whole, with the reason."""
    return [Held(message, _record(message, decode)) for message in messages]


def _record(message: KafkaMessage, decode: Decode) -> Any:
    try:
        return decode(message)
    except Rejected as error:
        return Refused(raw_record(message), error.reason, error.detail)
    except RECORD_ERRORS as error:
        return Refused(raw_record(message), "wrong_type", f"decode raised {type(error).__name__}: {error}")


class PartitionWriter(OnceWriter):
    """Writes what a consumer holds. A partition gets its filter when it is first asked, and loses it when it goes."""

    _filters: PartitionFilters | None = None
    _partitions: dict[int, Partition]

    def write_held(self, held: Sequence[Held]) -> Results:
        """Write a batch as `write` does; what was refused goes to its destination when the others are finished."""
        good = [each for each in held if type(each.record) is not Refused]
        self._partitions = {id(each.record): each.message.partition for each in good}
        results = self.write([each.record for each in good])
        refused = [each.record for each in held if type(each.record) is Refused]
        if refused:
            # Only now, so that a batch that is repeated does not hand them over each time.
            results.rejected += self.write((), refused=refused).rejected
        return results

    def drop(self, partitions: frozenset[Partition]) -> None:
        """Forget what was known of the keys of partitions that went away."""
        if self._filters is not None:
            self._filters.drop(partitions)

    def _new_filter(self) -> None:
        gate = self._session.gate
        if gate.start_from is not None:
            raise Misconfigured(f"start_from={gate.start_from!r} does nothing here: a partition's filter starts cold")
        if isinstance(gate.membership, MembershipRecipe):
            self._filters = PartitionFilters(gate.membership)

    def _flush(self, items: Sequence[Item]) -> Flushed:
        if self._filters is None:
            return super()._flush(items)
        self._filters.route({each.claim.digest: self._partitions[id(each.record)] for each in items})
        flushed = self._session.flush(items, self._filters)
        self._watch.look(self._filters.live)
        return flushed
