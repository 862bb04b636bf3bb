"""The pipelines that the gate is held against: the same steps without the gate, and no more than a write."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.utils.windowed_value import WindowedValue
from oncesink.connectors.contract import Claim, Write
from oncesink.connectors.memory_sinks import MemorySink
from oncesink.connectors.mysql_connection import MySQLConnection
from oncesink.connectors.mysql_insert import insert
from oncesink.connectors.mysql_server import MySQLServer
from oncesink.connectors.secret import Secret
from oncesink.connectors.table_values import TableValues
from oncesink.transforms import Fields, Gate
from oncesink.transforms.beam_hop import Parcel, ShardFn, unpack
from oncesink.transforms.prepare import Item

from benchmarks.mysql import BATCH_ROWS, COLUMNS

SHARDS = 16
VARIABLE = "ONCESINK_BENCHMARK_PASSWORD"
PASSWORD = Secret.env(VARIABLE)
"""A literal one does not leave the process, and a pipeline is pickled."""


class Ungated(beam.PTransform):
    """The same steps with the gate left out; without the hop too, unless `keyed`."""

    def __init__(self, url: str, *, keyed: bool) -> None:
        super().__init__()
        self._url = url
        self._keyed = keyed

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Put the steps together."""
        if not self._keyed:
            return records | "Write" >> beam.ParDo(WriteFn(self._url))
        keyed = records | "KeyByShard" >> beam.ParDo(PassOnFn()).with_output_types(tuple[int, bytes])
        return keyed | "Write" >> beam.ParDo(KeyedWriteFn(self._url))


class PassOn:
    """In the place of a `Preparer`: no more than what the hop needs."""

    def batch(self, records: Sequence[dict[str, Any]]) -> list[Item]:
        """Return items that have a shard."""
        shards = [zlib.crc32(each["order_id"].encode()).to_bytes(4, "big") for each in records]
        return [Item(each, Claim(shard, None, None)) for each, shard in zip(records, shards, strict=True)]


class PassOnFn(ShardFn):
    """The gate's own way to the hop, without its keys, occurrences and hashes."""

    def __init__(self) -> None:
        gate = Gate(scope="none", key=Fields("order_id"), occurrence=None, shards=SHARDS)
        super().__init__(gate, MemorySink(drops_by_key=True))
        self._prepare: Any = PassOn()


class WriteFn(beam.DoFn):
    """Buffer a bundle and insert it in batches, each committed by itself; pass the records on."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def setup(self) -> None:
        """Connect."""
        self._connection = MySQLConnection(MySQLServer(url=self._url, password=PASSWORD))
        self._values = TableValues("orders", COLUMNS, columns={name: name for name in COLUMNS})

    def start_bundle(self) -> None:
        """Begin with an empty buffer."""
        self._buffer: list[WindowedValue] = []

    def process(
        self, record: dict[str, Any], where: WindowedValue = beam.DoFn.WindowedValueParam
    ) -> Iterable[WindowedValue]:
        """Buffer the record, and insert a full batch."""
        self._buffer.append(where)
        return self.flush() if len(self._buffer) >= BATCH_ROWS else []

    def finish_bundle(self) -> Iterable[WindowedValue]:
        """Insert what is left."""
        return self.flush()

    def flush(self) -> list[WindowedValue]:
        """Insert what is buffered."""
        buffered, self._buffer = self._buffer, []
        if buffered:
            insert(self._connection, "orders", self._values.read([Write(each.value, b"", None) for each in buffered]))
        return buffered

    def teardown(self) -> None:
        """Disconnect."""
        self._connection.close()


class KeyedWriteFn(WriteFn):
    """The same behind the hop: state, which it does not use, is what makes the runner group by key."""

    STATE = BagStateSpec("unused", BytesCoder())

    def process(  # type: ignore[override]
        self,
        element: Parcel,
        state: Any = beam.DoFn.StateParam(STATE),  # noqa: B008
    ) -> Iterable[WindowedValue]:
        """Unpack and buffer the records, and insert a batch that would grow too large."""
        items, _ = unpack(element[1])
        out = self.flush() if len(self._buffer) + len(items) > BATCH_ROWS else []
        self._buffer += [item.context.with_value(item.record) for item in items]
        return out
