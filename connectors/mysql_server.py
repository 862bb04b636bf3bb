"""Where a MySQL server is and how long it may take: URL, TLS, time-outs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from .errors import Misconfigured
from .secret import Secret
from .wanted import check_durations

SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""What does not fit is an error, never cut; a backslash escapes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MySQLTLS:
    """Ask for TLS. `ca`, `cert` and `key` are files of the worker; `verify` checks certificate and host name."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True

    def options(self) -> dict[str, Any]:
        """Return the driver's arguments."""
        files = {"ssl_ca": self.ca, "ssl_cert": self.cert, "ssl_key": self.key}
        return {**files, "ssl_verify_cert": self.verify, "ssl_verify_identity": self.verify}


@dataclass(frozen=True, kw_only=True, slots=True)
class MySQLTimeouts:
    """How long each wait may last.

    `statement` bounds the wait for a reply; `lock` the wait for a row inside it, so that the server answers before the
    client gives up; `idle` is when the server ends a silent connection and with it the transaction of a lost host:
    choose about the lease.
    """

    connect: timedelta = timedelta(seconds=5)
    statement: timedelta = timedelta(seconds=20)
    lock: timedelta = timedelta(seconds=5)
    idle: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        check_durations(self)
        second = timedelta(seconds=1)
        if self.connect <= timedelta(0):
            raise Misconfigured(f"connect={self.connect} is no time-out")
        if not second <= self.lock < self.statement:
            raise Misconfigured(f"lock={self.lock} must be at least a second and below statement={self.statement}")
        if self.idle < 2 * second:
            raise Misconfigured(f"idle={self.idle} must be at least two seconds")


@dataclass(frozen=True, kw_only=True, slots=True)
class MySQLServer:
    """One database of one server. The URL, `mysql://user@host:3306/database`, holds no password."""

    url: str
    password: Secret | None = None
    tls: MySQLTLS | None = None
    timeouts: MySQLTimeouts = field(default_factory=MySQLTimeouts)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "mysql" or not parts.hostname or len(self.database) == 0 or parts.query or parts.fragment:
            # The text is not repeated, here and below: a password may stand where none belongs.
            raise Misconfigured("a MySQL URL looks like mysql://user@host:3306/database, without ?options")
        try:
            _ = parts.port
        except ValueError:
            raise Misconfigured("the port is a number; special characters of a password are escaped") from None

    @property
    def database(self) -> str:
        return unquote(urlsplit(self.url).path.lstrip("/"))

    def options(self) -> dict[str, Any]:
        """Return the driver's arguments, password included."""
        parts = urlsplit(self.url)
        statement_seconds = self.timeouts.statement.total_seconds()
        return {
            "host": parts.hostname,
            "port": parts.port or 3306,
            "user": unquote(parts.username) if parts.username else None,
            # As bytes: the driver would encode text as Latin-1, and its error would show the password.
            "password": self.password.reveal().encode() if self.password else b"",
            "database": self.database,
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": self.timeouts.connect.total_seconds(),
            "read_timeout": statement_seconds,
            "write_timeout": statement_seconds,
            **(self.tls.options() if self.tls else {}),
        }

    def session_settings(self, *, mariadb: bool) -> tuple[str, str]:
        """Return the statements that make a session independent of the server's own settings."""
        lock_seconds = int(self.timeouts.lock.total_seconds())
        settings: dict[str, str | int] = {
            "sql_mode": f"'{SQL_MODE}'",
            "time_zone": "'+00:00'",
            # Then what is counted as a warning would have been an error of an insert.
            "sql_notes": 0,
            "unique_checks": 1,
            "foreign_key_checks": 1,
            "innodb_lock_wait_timeout": lock_seconds,
            "lock_wait_timeout": lock_seconds,
            "wait_timeout": int(self.timeouts.idle.total_seconds()),
        }
        if mariadb:
            # From 1000 values in an IN list on, it would read the whole table instead of looking each one up, whatever
            # the index hint says, and wait for rows of others.
            settings["in_predicate_conversion_threshold"] = 0
        assignments = ", ".join(f"{name}={value}" for name, value in settings.items())
        return "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", f"SET SESSION {assignments}"
