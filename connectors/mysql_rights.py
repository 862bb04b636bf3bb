"""What a MySQL user may do, proved by statements that would change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .errors import Misconfigured
from .findings import Finding
from .mysql_connection import MySQLConnection
from .mysql_errors import code_of
from .mysql_literals import quoted
from .mysql_server import MySQLServer

_DENIED = (1044, 1142, 1143)
"""Errors that say that this user may not do it: in a database, to a table, to a column."""


def check_rights(connection: MySQLConnection, table: str, columns: Sequence[str], *verbs: str) -> Iterator[Finding]:
    """Look whether this user may INSERT, UPDATE or DELETE, by the columns that it writes.

    What `information_schema` tells of rights leaves out roles; the server itself does not.
    """
    for verb in verbs:
        if not _may(connection, _nothing(verb, quoted(table), [quoted(name) for name in columns])):
            place = f"{connection.server.database}.{table}"
            [(user,)] = connection.query("SELECT CURRENT_USER()")
            yield Finding(severity="error", what=f"{user} may not {verb} in {place}", todo=f"GRANT {verb} ON {place}")


def _may(connection: MySQLConnection, statement: str) -> bool:
    try:
        connection.execute(statement)
    except Misconfigured as error:
        if not _is_denied(error):
            raise
        return False
    return True


def create_tables(server: MySQLServer, statements: Sequence[str]) -> None:
    """Make the library's tables where they are missing. Raises `Misconfigured` for a user who may not."""
    connection = MySQLConnection(server)
    try:
        for statement in statements:
            connection.execute(statement)
    except Misconfigured as error:
        if not _is_denied(error):
            raise
        raise Misconfigured(
            f"this user may not make tables in {server.database}: GRANT CREATE, or let somebody who may run what"
            f" `oncesink init` prints ({error})"
        ) from error
    finally:
        connection.close()


def _nothing(verb: str, table: str, columns: Sequence[str]) -> str:
    """Return a statement that needs the right and finds no row: no lock is taken and nothing is written."""
    if verb == "INSERT":
        names = ",".join(columns)
        return f"INSERT INTO {table} ({names}) SELECT {names} FROM {table} WHERE FALSE"
    if verb == "UPDATE":
        return f"UPDATE {table} SET {','.join([f'{name}={name}' for name in columns])} WHERE FALSE"
    return f"DELETE FROM {table} WHERE FALSE"


def _is_denied(error: Misconfigured) -> bool:
    return isinstance(error.__cause__, Exception) and code_of(error.__cause__) in _DENIED
