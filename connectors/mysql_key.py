"""The declared key of a MySQL table: how records' keys are written, and looked up as the table compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import Rejected
from .mysql_connection import MySQLConnection
from .mysql_literals import encoded, literal, quoted
from .table_values import Values

KEYS_A_STATEMENT = 250

KeyText = tuple[str, ...]
"""A key as SQL: what the columns keep of its values."""


@dataclass(frozen=True, slots=True)
class TableKey:
    """`columns` holds, for each column, the template that turns a literal into what the column keeps."""

    table: str
    columns: Mapping[str, str]

    def texts(self, values: Values) -> list[KeyText]:
        """Return the key of each row. Raises `Rejected` for a value that has no form in SQL."""
        places = [(values.names.index(name), template) for name, template in self.columns.items()]
        return [tuple([template.format(literal(row[place])) for place, template in places]) for row in values.rows]

    def find(self, connection: MySQLConnection, keys: Sequence[KeyText], what: str) -> dict[int, tuple[Any, ...]]:
        """Return what stands in the rows that are there, by the number of the key.

        Each key is looked up by itself, so that the table's own collation and rounding decide what is equal. A key that
        the column cannot hold as it is, is not there, whatever row the server's lenient comparison would lead to: an
        insert then says what is wrong with it. Raises `Rejected` (`not_unicode`, `too_large`).
        """
        selects = [
            encoded(
                f"SELECT {index},{what} FROM {quoted(self.table)} WHERE "
                + " AND ".join([f"{quoted(name)}={text}" for name, text in zip(self.columns, key, strict=True)])
            )
            for index, key in enumerate(keys)
        ]
        found: dict[int, tuple[Any, ...]] = {}
        for start in range(0, len(selects), KEYS_A_STATEMENT):
            rows = _look(connection, selects[start : start + KEYS_A_STATEMENT])
            found.update({int(index): tuple(rest) for index, *rest in rows})
        return found


def _look(connection: MySQLConnection, selects: Sequence[bytes]) -> Sequence[tuple[Any, ...]]:
    """Return the rows of all look-ups that the server could do without changing a value."""
    statement = b" UNION ALL ".join(selects)
    fits = len(statement) <= connection.max_statement_bytes
    rows = connection.query_exactly(statement) if fits else None
    if rows is not None:
        return rows
    if len(selects) > 1:
        half = len(selects) // 2
        return [*_look(connection, selects[:half]), *_look(connection, selects[half:])]
    if fits:
        return ()
    raise Rejected("too_large", f"a key needs {len(statement)} bytes, max_allowed_packet leaves less")
