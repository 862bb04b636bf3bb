"""An address with places for parts of a record: `https://shop.example/orders/{order_id}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_plus, urlsplit

from .errors import Misconfigured, Rejected
from .text_template import pieces, text_at

KEY_FIELD = "idempotency_key"


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """An http(s) URL with places.

    `{order_id}` and, nested, `{order.id}` stand for values of the record, `{idempotency_key}` for its key; they may
    stand in path and query, never in the host, and are percent-encoded.

    Raises `Misconfigured`, without the text, for what is no such URL: it may hold a password.
    """

    text: str

    def __post_init__(self) -> None:
        text = self.text
        if not (text.isascii() and text.isprintable()) or " " in text:
            raise Misconfigured("a URL holds printable ASCII: percent-encode the rest")
        pieces(text)
        try:
            head = urlsplit(text.partition("{")[0])
            _ = head.port
        except ValueError:
            raise Misconfigured("this is not a URL; it has the form https://host:port/path") from None
        if head.scheme not in ("http", "https") or not head.hostname:
            raise Misconfigured("a URL begins with http:// or https:// and a host")
        if "@" in head.netloc:
            raise Misconfigured(f"{head.hostname}: no user or password in a URL: give headers={{'Authorization': ...}}")
        if "#" in text:
            raise Misconfigured(f"{head.hostname}: a # in a URL is not sent: percent-encode it, or remove it")
        if "{" in text and not head.path.startswith("/"):
            raise Misconfigured(f"{head.hostname}: a record may not choose the host: begin the path with a /")

    @property
    def shown(self) -> str:
        """Return the URL without its query, which may hold a token."""
        return self.text.partition("?")[0]

    @property
    def query_values(self) -> list[str]:
        """Return what the query holds whoever's record it is, as it is sent and as it is read: it may be a token."""
        query = "&".join(literal for literal, _ in pieces(self.text)).partition("?")[2]
        fixed = [value for pair in query.split("&") if (value := _value(pair))]
        return [*fixed, *map(unquote_plus, fixed)]

    def fill(self, record: Any, key: str) -> str:
        """Return the URL of one record. Raises `Rejected` where a value is missing or cannot stand in a URL."""
        parts = []
        for literal, name in pieces(self.text):
            parts.append(literal)
            if name is not None:
                parts.append(key if name == KEY_FIELD else _quoted(record, name))
        return "".join(parts)


def _value(pair: str) -> str:
    name, is_named, value = pair.partition("=")
    return value if is_named else name


def _quoted(record: Any, name: str) -> str:
    text = text_at(record, name)
    # A path of them would lead to somewhere else: clients and servers fold it.
    if text in (".", ".."):
        raise Rejected("wrong_type", f"{name}={text!r} cannot be a part of a URL")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise Rejected("not_unicode", f"{name} holds a lone surrogate") from error
