"""One multi-row INSERT of a batch: what the table sinks and their ungated opponent in the benchmarks share."""

from __future__ import annotations

from .errors import Rejected
from .mysql_connection import MySQLConnection
from .mysql_literals import LITERALS, encoded, quoted
from .table_values import Values


def insert(connection: MySQLConnection, table: str, values: Values, *, also: str = "") -> int:
    """Insert all rows or none; return how many rows it changed. `also` is what follows the rows.

    Raises `Rejected` (`too_large`: send fewer) and what `execute` raises.
    """
    statement = insert_statement(table, values) + also.encode()
    if len(statement) > connection.max_statement_bytes:
        what = f"{len(values.rows)} rows need {len(statement)} bytes"
        raise Rejected("too_large", f"{what}, max_allowed_packet leaves {connection.max_statement_bytes}")
    return connection.execute(statement)


def insert_statement(table: str, values: Values) -> bytes:
    """Build the statement. Raises `Rejected` where a value has no form in SQL."""
    rows = ",".join(["(" + ",".join([LITERALS[type(value)](value) for value in row]) + ")" for row in values.rows])
    names = ",".join([quoted(name) for name in values.names])
    return encoded(f"INSERT INTO {quoted(table)} ({names}) VALUES {rows}")
