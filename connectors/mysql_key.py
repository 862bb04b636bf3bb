"""The declared key of a MySQL table: how records' keys are written, and looked up as the table compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .mysql_connection import MySQLConnection
from .mysql_literals import literal, quoted
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

        Each key is looked up by itself, so that the table's own collation and rounding decide what is equal.
        """
        selects = [
            f"SELECT {index},{what} FROM {quoted(self.table)} WHERE "
            + " AND ".join([f"{quoted(name)}={text}" for name, text in zip(self.columns, key, strict=True)])
            for index, key in enumerate(keys)
        ]
        found: dict[int, tuple[Any, ...]] = {}
        for start in range(0, len(selects), KEYS_A_STATEMENT):
            rows = connection.query(" UNION ALL ".join(selects[start : start + KEYS_A_STATEMENT]))
            found.update({int(index): tuple(rest) for index, *rest in rows})
        return found
