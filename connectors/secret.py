"""Passwords that are resolved on the worker and show nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

from .errors import Misconfigured


class Secret:
    """Where a password comes from: `Secret.env("NAME")`, `Secret.file(path)`, `Secret.call(function)`.

    Only the place is kept, and only the place is pickled. `Secret.literal` keeps the password itself, for a process
    that reads it from somewhere else: it refuses to be pickled.
    """

    __slots__ = ("_kind", "_source")

    def __init__(self, kind: str, source: object) -> None:
        self._kind = kind
        self._source = source

    @classmethod
    def env(cls, name: str) -> Secret:
        return cls("env", name)

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> Secret:
        return cls("file", os.fspath(path))

    @classmethod
    def call(cls, function: Callable[[], str]) -> Secret:
        """Ask a function, which must be picklable: define it at the top of a module."""
        return cls("call", function)

    @classmethod
    def literal(cls, password: str) -> Secret:
        return cls("literal", password)

    def reveal(self) -> str:
        """Return the password. Raises `Misconfigured`, naming the place, where there is none."""
        try:
            return self._read()
        except (KeyError, OSError) as error:
            raise Misconfigured(f"no password in {self!r}") from error
        except UnicodeError:
            # That error holds the bytes that it could not read.
            raise Misconfigured(f"the password in {self!r} is not UTF-8") from None

    def _read(self) -> str:
        if self._kind == "env":
            return os.environ[str(self._source)]
        if self._kind == "file":
            return Path(str(self._source)).read_text(encoding="utf-8").rstrip("\n")
        if callable(self._source):
            return str(self._source())
        return str(self._source)

    def __repr__(self) -> str:
        if self._kind == "literal":
            return "Secret.literal('***')"
        return f"Secret.{self._kind}({self._source!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._kind, self._source) == (other._kind, other._source)

    def __hash__(self) -> int:
        return hash((self._kind, self._source))

    def __reduce__(self) -> tuple[type[Secret], tuple[str, object]]:
        if self._kind == "literal":
            self._refuse()
        return Secret, (self._kind, self._source)

    def _refuse(self) -> NoReturn:
        raise Misconfigured(
            "a literal password must not leave this process: use Secret.env(...), .file(...) or .call(...)"
        )


def take_password(url: str, password: Secret | None) -> tuple[str, Secret | None]:
    """Split a password off a URL, so that the URL may be shown.

    Raises `Misconfigured`, without the text, for what is no URL, for two passwords, and for one that is not a `Secret`.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        # The text is not repeated: it may hold a password.
        raise Misconfigured("this is not a URL; it has the form scheme://user@host:port/name") from error
    if "@" in parts.path + parts.query + parts.fragment:
        raise Misconfigured("an @ stands behind the host: escape the password (%23 for #, ...), or use Secret.env(...)")
    if password is not None and not isinstance(password, Secret):
        raise Misconfigured("password= takes Secret.env(...), .file(...) or .call(...), not the password itself")
    if parts.password is None:
        return url, password
    user, _, host = parts.netloc.rpartition("@")
    clean = urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}" if user.partition(":")[0] else host))
    if password is not None:
        raise Misconfigured(f"two passwords: one in the URL {clean!r} and one in password=")
    return clean, Secret.literal(unquote(parts.password))
