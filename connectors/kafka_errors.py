"""What Kafka's errors mean, by their codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import Misconfigured, OnceSinkError, Unavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_TO_DO = {
    "_AUTO_OFFSET_RESET": "there is no committed offset to go on from, or its messages are gone: set the group's"
    " offset, or choose another auto.offset.reset",
    "FENCED_INSTANCE_ID": "another process uses the same group.instance.id: give each its own",
    "TOPIC_AUTHORIZATION_FAILED": "let this user read the topic",
    "GROUP_AUTHORIZATION_FAILED": "let this user read as this group",
    "INCONSISTENT_GROUP_PROTOCOL": "other members of the group use another partition.assignment.strategy",
    "INVALID_GROUP_ID": "choose another group.id",
    "UNSUPPORTED_VERSION": "the broker is too old for this group.protocol",
    "_INVALID_ARG": "mend the settings",
    "_FATAL": "the client cannot go on",
}
"""Errors that do not pass."""

_NOT_LET_IN = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})


def mapped(error: KafkaError, doing: str) -> OnceSinkError:
    """Return what an error of the client means: `Misconfigured` where it will not pass, else `Unavailable`."""
    text = f"Kafka: {doing}: {error.name()}: {error.str()}"
    if error.name() in _TO_DO or error.fatal():
        return Misconfigured(f"{text}; {_TO_DO.get(error.name(), _TO_DO['_FATAL'])}")
    return Unavailable(text)


def not_let_in(error: KafkaError) -> Misconfigured | None:
    """Return what it means that a broker does not know this user, None for other errors.

    To a client that was let in before it may pass, where a password is being changed; the client itself never gives up.
    """
    if error.name() not in _NOT_LET_IN:
        return None
    return Misconfigured(
        f"Kafka does not let this client in: {error.str()}; look at user, password and security.protocol"
    )
