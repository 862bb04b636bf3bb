"""The tables, as DDL that `oncesink init` prints or applies. Format 1; all times are UTC."""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import Misconfigured

LEDGER_TABLE = "oncesink_ledger"
SCOPES_TABLE = "oncesink_scopes"


def init_command(table: str) -> str:
    """Say how the tables of this ledger are made."""
    return "run `oncesink init --apply`" if table == LEDGER_TABLE else f"run `oncesink init --table {table} --apply`"


MYSQL_LEDGER = """\
CREATE TABLE IF NOT EXISTS {table} (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  digest BINARY(16) NOT NULL,
  scope VARBINARY(64) NOT NULL,
  generation INT UNSIGNED NOT NULL,
  occurrence VARBINARY(255) NULL,
  state TINYINT UNSIGNED NOT NULL COMMENT '0 open, 1 finished',
  owner BINARY(16) NOT NULL,
  lease_until DATETIME(6) NULL COMMENT 'NULL once finished',
  payload_hash BINARY(16) NULL,
  result MEDIUMBLOB NULL,
  payload MEDIUMBLOB NULL,
  created_at DATETIME(6) NOT NULL,
  finished_at DATETIME(6) NULL,
  UNIQUE KEY digest (digest),
  KEY open_rows (state, lease_until)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"""

MYSQL_SCOPES = """\
CREATE TABLE IF NOT EXISTS {table} (
  scope VARBINARY(64) NOT NULL,
  used_for VARBINARY(8) NOT NULL,
  tables_format SMALLINT UNSIGNED NOT NULL,
  generation INT UNSIGNED NOT NULL,
  meaning MEDIUMBLOB NOT NULL COMMENT 'JSON in UTF-8',
  ledger_id BINARY(16) NOT NULL,
  retention_seconds BIGINT UNSIGNED NULL,
  created_at DATETIME(6) NOT NULL,
  changed_at DATETIME(6) NOT NULL,
  PRIMARY KEY (scope, used_for)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"""

SQLITE_LEDGER = """\
CREATE TABLE IF NOT EXISTS {table} (
  id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 16),
  scope TEXT NOT NULL,
  generation INTEGER NOT NULL,
  occurrence BLOB NULL,
  state INTEGER NOT NULL, -- 0 open, 1 finished
  owner BLOB NOT NULL CHECK (length(owner) = 16),
  lease_until INTEGER NULL, -- microseconds since 1970, NULL once finished
  payload_hash BLOB NULL,
  result BLOB NULL,
  payload BLOB NULL,
  created_at INTEGER NOT NULL,
  finished_at INTEGER NULL
)"""

SQLITE_OPEN_ROWS = "CREATE INDEX IF NOT EXISTS {table}_open_rows ON {table} (lease_until) WHERE state = 0"

SQLITE_SCOPES = """\
CREATE TABLE IF NOT EXISTS {table} (
  scope TEXT NOT NULL,
  used_for TEXT NOT NULL,
  tables_format INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  meaning TEXT NOT NULL, -- JSON
  ledger_id BLOB NOT NULL,
  retention_seconds INTEGER NULL,
  created_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  PRIMARY KEY (scope, used_for)
)"""


class Column(NamedTuple):
    """What a column of the MySQL ledger must be; `size` is bytes, or digits of a second for times."""

    data_type: str
    size: int | None
    nullable: bool


MYSQL_LEDGER_COLUMNS = {
    "id": Column("bigint", None, nullable=False),
    "digest": Column("binary", 16, nullable=False),
    "scope": Column("varbinary", 64, nullable=False),
    "generation": Column("int", None, nullable=False),
    "occurrence": Column("varbinary", 255, nullable=True),
    "state": Column("tinyint", None, nullable=False),
    "owner": Column("binary", 16, nullable=False),
    "lease_until": Column("datetime", 6, nullable=True),
    "payload_hash": Column("binary", 16, nullable=True),
    "result": Column("mediumblob", None, nullable=True),
    "payload": Column("mediumblob", None, nullable=True),
    "created_at": Column("datetime", 6, nullable=False),
    "finished_at": Column("datetime", 6, nullable=True),
}

MYSQL_SCOPES_COLUMNS = (
    "scope",
    "used_for",
    "tables_format",
    "generation",
    "meaning",
    "ledger_id",
    "retention_seconds",
    "created_at",
    "changed_at",
)


def mysql_ddl(table: str = LEDGER_TABLE) -> list[str]:
    """Return the statements that make a ledger and its table of scopes where they are absent."""
    return [MYSQL_LEDGER.format(table=checked(table)), MYSQL_SCOPES.format(table=SCOPES_TABLE)]


def mysql_scopes_ddl() -> list[str]:
    """Return the statement for a table sink that has no ledger."""
    return [MYSQL_SCOPES.format(table=SCOPES_TABLE)]


def sqlite_ddl(table: str = LEDGER_TABLE) -> list[str]:
    """Return the statements that make a ledger and its table of scopes where they are absent."""
    templates = (SQLITE_LEDGER, SQLITE_OPEN_ROWS)
    return [each.format(table=checked(table)) for each in templates] + [SQLITE_SCOPES.format(table=SCOPES_TABLE)]


def checked(table: str) -> str:
    """Return the name of a table of this library. Raises `Misconfigured` unless it needs no quotes."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", table):
        raise Misconfigured(f"a ledger's table is named with letters, digits and _, not {table!r}")
    return table
