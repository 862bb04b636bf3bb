"""`KafkaSource`: which topics a program without an engine reads, as which group, and how the client is set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .errors import Misconfigured
from .kafka_secrets import plain_secrets
from .secret import Secret

DEFAULT_MAX_POLL = timedelta(minutes=5)
"""What librdkafka takes where `max.poll.interval.ms` is not set."""

_DEFAULTS = {"isolation.level": "read_committed"}
_OURS = {"enable.auto.commit": False, "enable.auto.offset.store": False}
"""Offsets are committed when their records are finished, and never by the clock."""
_NEEDED = {
    "bootstrap.servers": "where the brokers are",
    "group.id": "as which group it reads",
    "auto.offset.reset": "where it begins without a committed offset: 'earliest', 'error', or 'latest', which skips"
    " what came before",
}


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Recipe of a consumer: topics, and settings of librdkafka by their own names.

    `bootstrap.servers`, `group.id` and `auto.offset.reset` have to be given. `isolation.level` is `read_committed`
    unless it is set: what an aborted transaction wrote never was. Offsets are committed by whoever writes, so
    `enable.auto.commit` is refused. Passwords are `Secret`s. Both ways to rebalance are served, eager and cooperative
    (`partition.assignment.strategy`), and so is the protocol of Kafka 4 (`group.protocol`).
    """

    topics: tuple[str, ...]
    settings: Mapping[str, Any] = field(hash=False)

    def __init__(self, *topics: str, settings: Mapping[str, Any]) -> None:
        object.__setattr__(self, "topics", topics)
        object.__setattr__(self, "settings", dict(settings))
        if not topics or not all(isinstance(each, str) and each for each in topics):
            raise Misconfigured(f"KafkaSource needs names of topics, not {topics!r}")
        _refuse_missing(self.settings)
        _refuse_ours(self.settings)
        _refuse_plain_secrets(self.settings)

    @property
    def group(self) -> str:
        return str(self.settings["group.id"])

    @property
    def max_poll(self) -> timedelta:
        """Return the longest that a batch may take before the group gives its partitions to somebody else."""
        millis = self.settings.get("max.poll.interval.ms")
        return DEFAULT_MAX_POLL if millis is None else timedelta(milliseconds=float(millis))

    def resolved(self, **callbacks: Callable[..., None]) -> dict[str, Any]:
        """Return what the client takes, passwords included: for the client only."""
        settings = {**_DEFAULTS, **self.settings, **_OURS, **callbacks}
        return {name: each.reveal() if isinstance(each, Secret) else each for name, each in settings.items()}

    def masked(self, text: str) -> str:
        """Return a text of the client's without the passwords that it may repeat."""
        secrets = (each.reveal() for each in self.settings.values() if isinstance(each, Secret))
        return "(not shown: it holds a password)" if any(each in text for each in secrets) else text

    def __repr__(self) -> str:
        return f"KafkaSource({', '.join(map(repr, self.topics))}, settings={dict(self.settings)!r})"


def _refuse_missing(settings: Mapping[str, Any]) -> None:
    missing = [f"{name!r} ({why})" for name, why in _NEEDED.items() if not settings.get(name)]
    if missing:
        raise Misconfigured(f"KafkaSource: settings lack {', '.join(missing)}")


def _refuse_ours(settings: Mapping[str, Any]) -> None:
    if "error_cb" in settings:
        raise Misconfigured("KafkaSource: error_cb is ours: the client's errors go to the logger oncesink")
    for name in _OURS:
        if str(settings.get(name, False)).lower() not in ("false", "0", "no"):
            raise Misconfigured(
                f"KafkaSource: {name}={settings[name]!r} would commit records that are not finished, and lose them in"
                " a crash: leave it out"
            )


def _refuse_plain_secrets(settings: Mapping[str, Any]) -> None:
    for name in plain_secrets(settings):
        raise Misconfigured(f"KafkaSource: {name} takes Secret.env(...), .file(...) or .call(...)")
