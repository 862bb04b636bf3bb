"""Which settings of librdkafka hold what must not show: for its consumers and its producers alike."""

from __future__ import annotations

from collections.abc import Mapping

from .secret import Secret

_PARTS = ("password", "passphrase", "secret", "key.pem", "sasl.oauthbearer.config")


def plain_secrets(settings: Mapping[str, object]) -> list[str]:
    """Return the names of settings that hold a credential as it is, where a `Secret` belongs."""
    return [
        name
        for name, value in settings.items()
        if any(part in name for part in _PARTS) and not isinstance(value, Secret)
    ]
