"""One librdkafka producer: made, asked whether its topic can take messages, and judged by its delivery reports.

Python is not told whether a message that failed had ever been sent, and a message that waits in the queue may be one
that waits to be sent again. So what was accepted and not acknowledged counts as perhaps there, unless the broker said
that it was not; and before a batch is accepted the broker is asked whether it is there at all.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from .contract import WRITTEN, Answer, Outcome
from .errors import Misconfigured, Reason, Unavailable
from .secret import Secret

log = logging.getLogger("oncesink.kafka")

Settings = Mapping[str, "str | int | float | bool | Secret"]

FIXED = frozenset(
    {
        "acks",
        "bootstrap.servers",
        "delivery.timeout.ms",
        "enable.idempotence",
        "error_cb",
        "logger",
        "message.timeout.ms",
        "metadata.broker.list",
        "on_delivery",
        "request.required.acks",
        "transactional.id",
    }
)
"""Settings that are made here, under all of their names."""

_REFUSED: dict[str, Reason] = {
    "MSG_SIZE_TOO_LARGE": "too_large",
    "RECORD_LIST_TOO_LARGE": "too_large",
    "INVALID_MSG": "refused",
    "INVALID_RECORD": "refused",
}
"""The broker, or the client itself, will never take this message."""

_NOT_APPENDED = frozenset(
    {
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "CLUSTER_AUTHORIZATION_FAILED",
        "NOT_ENOUGH_REPLICAS",
        "THROTTLING_QUOTA_EXCEEDED",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
    }
)
"""The broker said that it did not append the message, or there was none to send it to."""

_SETTINGS_AT_FAULT = frozenset(
    {
        "_AUTHENTICATION",
        "_SSL",
        "CLUSTER_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
    }
)


def make_producer(bootstrap: str, settings: Settings, timeout_seconds: float) -> Any:
    """Return a producer that is not connected yet. Raises `Misconfigured` for settings that librdkafka refuses."""
    kafka = driver()
    revealed = {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
    milliseconds = max(1, int(timeout_seconds * 1000))
    chosen = {
        "linger.ms": 1,
        **revealed,
        "acks": "all",
        "enable.idempotence": True,
        "bootstrap.servers": bootstrap,
        "message.timeout.ms": milliseconds,
        "error_cb": _log_error,
    }
    try:
        return kafka.Producer(chosen, logger=log)
    except (kafka.KafkaException, TypeError, ValueError) as error:
        text = str(error)
        for name, value in settings.items():
            if isinstance(value, Secret):
                text = text.replace(str(revealed[name]), "***")
        # The error of the driver may hold the value that it does not understand.
        raise Misconfigured(f"Kafka at {bootstrap}: these settings are refused: {text}") from None


def prove_topic(producer: Any, topic: str, place: str, seconds: float) -> None:
    """Ask for the topic. Raises `Unavailable`, or `Misconfigured` where only a person can help."""
    kafka = driver()
    try:
        found = producer.list_topics(topic, timeout=seconds).topics[topic]
    except kafka.KafkaException as error:
        name = error.args[0].name()
        kind = Misconfigured if name in _SETTINGS_AT_FAULT else Unavailable
        raise kind(f"{place} does not answer ({name})") from error
    if found.error is not None:
        name = found.error.name()
        if name in _SETTINGS_AT_FAULT:
            raise Misconfigured(f"{place}: topic {topic} cannot be written to ({name}): make it, or allow it")
        raise Unavailable(f"{place}: topic {topic} is not ready ({name})")
    headless = [number for number, each in found.partitions.items() if each.leader < 0]
    if headless or not found.partitions:
        raise Unavailable(f"{place}: topic {topic} has no leader for partitions {headless}")


def judge(error: Any) -> Answer:
    """Return the answer that a delivery report, or a refusal to accept a message, stands for."""
    if error is None:
        return WRITTEN
    name = error.name()
    if name in _REFUSED:
        return Answer(Outcome.REJECTED, detail=f"Kafka: {name}", reason=_REFUSED[name])
    return Answer(Outcome.UNAVAILABLE if name in _NOT_APPENDED else Outcome.UNKNOWN, detail=f"Kafka: {name}")


def driver() -> ModuleType:
    """Import confluent-kafka, here and not before. Raises `Misconfigured` with the command that installs it."""
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise Misconfigured("Kafka needs its client: pip install 'oncesink[kafka]'") from error


def _log_error(error: Any) -> None:
    log.warning("Kafka: %s", error.name())
