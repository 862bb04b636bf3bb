"""Headers of requests, whose values may be secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import Misconfigured
from .secret import Secret

Headers = Mapping[str, "str | Secret"]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
"""Without blanks at its ends: the client would refuse them request by request, when it has begun to send."""
_SECRET = re.compile(r"authorization|cookie|token|secret|password|api-?key", re.IGNORECASE)
_OURS = frozenset({"connection", "content-length", "host", "transfer-encoding"})


def check_headers(headers: Headers, key_header: str) -> None:
    """Raise `Misconfigured` for names and values that cannot be sent, and for credentials that would show."""
    for name, value in {**headers, key_header: ""}.items():
        if not _NAME.fullmatch(name) or name.lower() in _OURS:
            raise Misconfigured(f"{name!r} is no header that can be given here")
        if isinstance(value, str) and value and _SECRET.search(name):
            raise Misconfigured(f"header {name} holds a credential: give Secret.env(...), .file(...) or .call(...)")
        if isinstance(value, str) and not _VALUE.fullmatch(value):
            raise Misconfigured(
                f"the value of header {name} holds what cannot be sent: printable ASCII only, no blanks at its ends"
            )
    if key_header.lower() in {name.lower() for name in headers}:
        raise Misconfigured(f"header {key_header} is set by the sink: remove it from headers=")


def revealed(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers as they are sent. Raises `Misconfigured` for a secret that is not there or cannot be sent."""
    found = []
    for name, value in headers.items():
        text = value.reveal() if isinstance(value, Secret) else value
        if not _VALUE.fullmatch(text):
            raise Misconfigured(
                f"the secret of header {name}, {value!r}, holds what cannot be sent in a header: printable ASCII only,"
                " no blanks at its ends"
            )
        found.append((name.encode(), text.encode()))
    return found
