"""Kafka through `drop_duplicates` into Kafka, by Flink's transactional sink: the job of `scenarios/flink_filter.py`."""

from __future__ import annotations

from argparse import ArgumentParser

from oncesink.pipelines.flink_jsonl_to_mysql import add_stores, settings
from oncesink.pipelines.flink_kafka_to_mysql import add_topic, messages, of_messages
from oncesink.transforms.flink import drop_duplicates
from pyflink.common import Types
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink


def main() -> None:
    """Build the job and submit it."""
    options = ArgumentParser()
    add_topic(options)
    add_stores(options)
    options.add_argument("--passed", required=True, help="topic of what passes")
    chosen = options.parse_args()
    environment = StreamExecutionEnvironment.get_execution_environment(settings(chosen))
    passed = drop_duplicates(messages(environment, chosen), of_messages(chosen)).passed
    serializer = KafkaRecordSerializationSchema.builder().set_topic(chosen.passed)
    serializer = serializer.set_value_serialization_schema(SimpleStringSchema())
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(chosen.bootstrap)
        .set_record_serializer(serializer.build())
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("fire")
        .set_property("transaction.timeout.ms", "600000")
        .build()
    )
    passed.map(lambda row: row.value, Types.STRING()).uid("values").sink_to(sink).uid("passed")
    environment.execute("orders that pass once")


if __name__ == "__main__":
    main()
