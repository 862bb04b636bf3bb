"""One connection to one Redis: explicit time-outs, no retries of the driver's own, one table of errors.

A call that failed is over when it raises: the connection is dropped unless the reply was read to its end, so that no
later call reads a reply that was meant for an earlier one. The next call connects again.
"""

from __future__ import annotations

import hashlib
import importlib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

from .errors import Misconfigured, OnceSinkError, OutcomeUnknown, Unavailable
from .secret import Secret, take_password

Argument = bytes | str | int


class Refused(Unavailable):
    """The server answered, and the answer was that it cannot just now; nothing was applied."""


class ScriptMissing(Refused):
    """The server does not hold this script (any more): it was restarted or its scripts were flushed."""


_TROUBLES: dict[str, tuple[type[OnceSinkError], str]] = {
    "LOADING": (Refused, "it is still loading its data"),
    "BUSY": (Refused, "another client's script keeps it busy"),
    "OOM": (Refused, "it is out of memory: raise maxmemory, or shorten what is kept"),
    "READONLY": (Refused, "it is a replica: name the primary in the URL"),
    "MISCONF": (Refused, "it cannot save to disk and takes no writes"),
    "NOREPLICAS": (Refused, "too few replicas follow it (min-replicas-to-write)"),
    "MASTERDOWN": (Refused, "it is a replica that lost its primary"),
    "TRYAGAIN": (Refused, "its slots are being moved"),
    "CLUSTERDOWN": (Refused, "its cluster is down"),
    "NOSCRIPT": (ScriptMissing, "it does not hold the script"),
    "NOAUTH": (Misconfigured, "it wants a password: give password=Secret.env(...)"),
    "WRONGPASS": (Misconfigured, "it does not accept this user and password"),
    "NOPERM": (Misconfigured, "its ACL does not allow this user the command or the key"),
    "WRONGTYPE": (Misconfigured, "a key of this prefix holds another kind of value: choose another prefix"),
    "MOVED": (Misconfigured, "it is a node of a cluster, and this URL names a single server"),
    "ASK": (Misconfigured, "it is a node of a cluster, and this URL names a single server"),
    "CROSSSLOT": (Misconfigured, "it is a node of a cluster, and this URL names a single server"),
}
"""By error code: the first word of an error reply."""

_CODES = {
    "AuthenticationError": "WRONGPASS",
    "AuthenticationWrongNumberOfArgsError": "WRONGPASS",
    "AuthorizationError": "NOPERM",
    "BusyLoadingError": "LOADING",
    "OutOfMemoryError": "OOM",
    "NoScriptError": "NOSCRIPT",
    "ReadOnlyError": "READONLY",
    "NoPermissionError": "NOPERM",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "MovedError": "MOVED",
    "ClusterDownError": "CLUSTERDOWN",
    "ClusterCrossSlotError": "CROSSSLOT",
    "MasterDownError": "MASTERDOWN",
}
"""The driver cuts the code off where it has a class for it."""


class Script:
    """A Lua script, sent by its digest."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisEndpoint:
    """Where a Redis is, and how long to wait for it.

    `redis://[user@]host[:port][/db]`, or `rediss://`, which may have `ssl_...` options.
    """

    url: str
    password: Secret | None = None
    connect_seconds: float
    """Per attempt to connect; each reply of the greeting that follows may take `call_seconds`."""
    call_seconds: float
    """For each write to, and each read from, the connection."""

    def __post_init__(self) -> None:
        url, password = take_password(self.url, self.password)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "password", password)
        _check_url(url)

    @property
    def place(self) -> str:
        """Return `host:port/db`, for messages."""
        parts = urlsplit(self.url)
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}/{parts.path.strip('/') or 0}"


class RedisClient:
    """A connection that opens when it is first used, and again after it was lost. Belongs to one thread.

    `changes=True` marks a call that may change the data: if its reply is lost, that is `OutcomeUnknown`, else
    `Unavailable`.
    """

    def __init__(self, endpoint: RedisEndpoint) -> None:
        self._endpoint = endpoint
        self._driver = driver()
        self._connection: Any = None

    def connect(self) -> None:
        """Connect, where it is not. Raises `Unavailable`; `Misconfigured` for a wrong password or database."""
        if self._connection is not None and self._is_stale():
            self.close()
        if self._connection is None:
            self._connection = self._connected()

    def call(self, *command: Argument, changes: bool) -> Any:
        """Send one command and return its reply."""
        self.connect()
        with self._judged(changes=changes):
            self._connection.send_command(*command)
            return self._connection.read_response()

    def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument], *, changes: bool) -> Any:
        """Run a script, sending its source only where the server has not seen it."""
        parts = (len(keys), *keys, *arguments)
        try:
            return self.call("EVALSHA", script.sha, *parts, changes=changes)
        except ScriptMissing:
            return self.call("EVAL", script.source, *parts, changes=changes)

    def close(self) -> None:
        """Drop the connection. Safe to repeat; the next call connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _connected(self) -> Any:
        endpoint = self._endpoint
        password = None if endpoint.password is None else endpoint.password.reveal()
        retry = importlib.import_module("redis.retry").Retry(importlib.import_module("redis.backoff").NoBackoff(), 0)
        try:
            options = importlib.import_module("redis.connection").parse_url(endpoint.url)
            kind = options.pop("connection_class", self._driver.Connection)
            connection = kind(
                **options,
                password=password,
                socket_connect_timeout=endpoint.connect_seconds,
                socket_timeout=endpoint.call_seconds,
                # The driver would send a command again by itself, and a claim would find its own row.
                retry=retry,
                protocol=2,
            )
        except (TypeError, ValueError, self._driver.RedisError):
            # It names the option in as many ways as there are versions of it, and may quote what stands there.
            names = ", ".join(dict(parse_qsl(urlsplit(endpoint.url).query, keep_blank_values=True)))
            told = f"does not know one of the options {names}, or its value" if names else "refuses this URL"
            raise Misconfigured(f"Redis at {endpoint.place}: its driver {told}") from None
        with self._judged(changes=False):
            connection.connect()
        return connection

    def _is_stale(self) -> bool:
        # Between calls there is nothing to read: whatever is there is the end of the connection, or a reply nobody
        # waits for.
        try:
            return bool(self._connection.can_read(0))
        except (self._driver.RedisError, OSError):
            return True

    @contextmanager
    def _judged(self, *, changes: bool) -> Iterator[None]:
        try:
            yield
        except (self._driver.RedisError, OSError) as error:
            # A refusal was read to its end; but a replica, or a server that loads, may soon be somewhere else.
            if not isinstance(error, self._driver.ResponseError) or isinstance(error, self._driver.ReadOnlyError):
                self.close()
            raise self._mapped(error, changes=changes) from error
        except BaseException:
            self.close()
            raise

    def _mapped(self, error: Exception, *, changes: bool) -> OnceSinkError:
        at = f"Redis at {self._endpoint.place}"
        code = self._code(error)
        if code is not None:
            kind, hint = _TROUBLES.get(code, (Misconfigured, "it does not know what to do with the command"))
            return kind(f"{at}: {hint} ({code}: {error})")
        if isinstance(error.__context__, ssl.SSLCertVerificationError):
            return Misconfigured(f"{at}: its certificate is not trusted: give ssl_ca_certs in the URL ({error})")
        lost = OutcomeUnknown if changes else Unavailable
        return lost(f"{at} did not answer ({type(error).__name__}: {error})")

    def _code(self, error: Exception) -> str | None:
        code = _CODES.get(type(error).__name__)
        if code is None and isinstance(error, self._driver.ResponseError):
            return str(error).partition(" ")[0]
        return code

    def __reduce__(self) -> NoReturn:
        raise TypeError("a live connection cannot be pickled: pickle the recipe that opens it")

    def __repr__(self) -> str:
        state = "closed" if self._connection is None else "connected"
        return f"<{type(self).__name__} {self._endpoint.place} {state}>"


def driver() -> ModuleType:
    """Import redis-py, here and not before. Raises `Misconfigured` with the command that installs it."""
    try:
        return importlib.import_module("redis")
    except ImportError as error:
        raise Misconfigured("Redis needs its driver: pip install 'oncesink[redis]'") from error


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "cluster":
        if parts.path.strip("/") not in {"", "0"}:
            raise Misconfigured("a Redis Cluster has database 0 only, and is not supported: name a single server")
        raise Misconfigured("a Redis Cluster is not supported, name a single server: redis://host:port/db")
    if parts.scheme not in {"redis", "rediss"}:
        raise Misconfigured(f"{parts.scheme!r} is no scheme of Redis: redis://host:port/db or rediss://host:port/db")
    if not parts.path.strip("/").isdigit() and parts.path.strip("/"):
        raise Misconfigured("the database of Redis is a number: redis://host:port/0")
    try:
        _ = parts.port
    except ValueError:
        raise Misconfigured("the port of Redis is a number; special characters of a password are escaped") from None
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if not name.startswith("ssl_") or "password" in name or parts.scheme != "rediss":
            raise Misconfigured(f"option {name!r} of the URL: only ssl_... options of rediss:// may stand there")
