"""Settings of a consumer that endanger what it promises are refused, by name, before anything is read."""

from __future__ import annotations

from typing import Any

import pytest
from oncesink.connectors import (
    KafkaMessage,
    KafkaSink,
    KafkaSource,
    Misconfigured,
    Rejected,
    Secret,
    json_record,
    raw_record,
)
from oncesink.connectors.kafka_messages import Partition
from oncesink.transforms import KafkaPosition, SourcePosition, uuid_header

NEEDED = {"bootstrap.servers": "kafka:9092", "group.id": "orders", "auto.offset.reset": "earliest"}


def source(**settings: Any) -> KafkaSource:
    return KafkaSource(
        "orders", settings={**NEEDED, **{k if k == "error_cb" else k.replace("_", "."): v for k, v in settings.items()}}
    )


def test_aborted_transactions_are_not_read_unless_asked_for() -> None:
    """And offsets are never committed by the clock."""
    taken = source().resolved()
    assert taken["isolation.level"] == "read_committed"
    assert taken["enable.auto.commit"] is False
    assert taken["enable.auto.offset.store"] is False
    assert source(isolation_level="read_uncommitted").resolved()["isolation.level"] == "read_uncommitted"


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_missing_is_named(name: str) -> None:
    """Above all where to begin without an offset: the client's own default skips what came before."""
    settings = {key: value for key, value in NEEDED.items() if key != name}
    with pytest.raises(Misconfigured, match=f"lack '{name}'"):
        KafkaSource("orders", settings=settings)


@pytest.mark.parametrize("value", [True, "TRUE", 1])
def test_commits_by_the_clock_are_refused(value: Any) -> None:
    """They would commit what is not finished. Saying no to them is allowed."""
    with pytest.raises(Misconfigured, match=r"enable\.auto\.commit"):
        source(enable_auto_commit=value)
    assert source(enable_auto_commit=False, enable_auto_offset_store="false").resolved()["enable.auto.commit"] is False


def test_a_callback_that_would_not_be_called_is_refused() -> None:
    with pytest.raises(Misconfigured, match="error_cb"):
        source(error_cb=print)


def test_passwords_are_secrets_and_show_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain one is refused; a secret is read when the client is made."""
    with pytest.raises(Misconfigured, match=r"sasl.password takes Secret.env\(...\)"):
        source(sasl_password="hunter2")
    monkeypatch.setenv("P", "hunter2")
    hidden = source(sasl_password=Secret.env("P"))
    assert hidden.resolved()["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(hidden)
    assert "hunter2" not in hidden.masked("Invalid value hunter2")
    assert hidden.masked("No such property") == "No such property"


def test_topics_are_named() -> None:
    with pytest.raises(Misconfigured, match="names of topics"):
        KafkaSource(settings=NEEDED)


def message(value: bytes | None, offset: int = 7) -> KafkaMessage:
    return KafkaMessage(Partition("orders", 3), offset, 1000, b"k", value, [("uuid", b"u")])


def test_a_payload_cannot_forge_its_position() -> None:
    """Fields of the delivery come from Kafka, whatever the value holds."""
    record = json_record(message(b'{"id": 1, "_offset": 99, "_topic": "x"}'))
    assert record["_offset"] == 7
    assert record["_topic"] == "orders"
    assert record["id"] == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b'{"a": "\xff"}', "not_unicode"),
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"7", "wrong_type"),
        (b"[" * 100_000, "not_json"),
    ],
)
def test_a_value_that_cannot_be_read_is_rejected_by_name(value: bytes | None, reason: str) -> None:
    with pytest.raises(Rejected) as found:
        json_record(message(value))
    assert found.value.reason == reason
    assert raw_record(message(value))["_value"] == value


def test_a_position_is_topic_partition_and_offset_under_a_label() -> None:
    """The same bytes as the recipe of paths, so that both engines and plain programs can take turns."""
    record = json_record(message(b'{"id": 1}'))
    position = KafkaPosition("c/1")
    assert position(record) == SourcePosition("c/1", "_topic", "_partition", "_offset")(record)
    assert position(record) != position(json_record(message(b'{"id": 1}', offset=8)))
    assert position(raw_record(message(None))) == position(record)
    assert {"_timestamp", "_key", "_headers"} <= position.reads


def test_a_uuid_is_given_once_and_kept() -> None:
    """Headers that are sent again bear the same one."""
    first = uuid_header({"trace": b"1"})
    assert [name for name, _ in first] == ["trace", "uuid"]
    assert uuid_header(first) == first
    assert uuid_header() != uuid_header()
    assert uuid_header([("uuid", None)])[-1][1] is not None


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
def test_every_credential_of_the_client_has_to_be_a_secret(name: str) -> None:
    """By source and sink alike: a plain one would show in a repr and travel in a pickle."""
    with pytest.raises(Misconfigured, match=name) as caught:
        KafkaSource("orders", settings={**NEEDED, name: "hunter2"})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Misconfigured, match=name) as caught:
        KafkaSink("kafka:9092", "orders", settings={name: "hunter2"})
    assert "hunter2" not in str(caught.value)
