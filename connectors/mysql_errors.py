"""What each error of MySQL and of its driver means for the call that met it: the one table."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Fault(Enum):
    """What an error says about the statement that it answers."""

    LOST = "lost"
    """There is no reply and the connection is of no more use: the statement may have been applied."""
    BUSY = "busy"
    """The server answered that it applied nothing; another try may go through."""
    DUPLICATE = "duplicate"
    """A unique key holds the value already; nothing of the statement was applied."""
    REFUSED = "refused"
    """The data does not fit the table; nothing of the statement was applied."""
    MISCONFIGURED = "misconfigured"
    """It will fail each time until a person changes something."""


_FAULTS = {
    Fault.LOST: (
        1053,  # shutdown in progress
        1152,  # aborted connection
        1153,  # packet too large: the server closes the connection
        1158,  # network read
        1159,  # network read timed out
        1160,  # network write
        1161,  # network write timed out
        1180,  # error during the commit
        1927,  # MariaDB: connection was killed
        2006,
        2013,
        2014,  # commands out of sync
        2055,
        3169,  # session was killed
        4031,  # disconnected for inactivity
    ),
    Fault.BUSY: (
        1020,  # record has changed since it was last read
        1021,  # disk full
        1037,
        1038,
        1040,  # too many connections
        1041,
        1047,  # Galera: not ready
        1114,  # table full
        1129,  # host blocked for its connection errors
        1203,  # this user has too many connections
        1205,  # lock wait timed out: only the statement was rolled back
        1206,
        1213,  # deadlock
        1226,  # resource limit of the account
        1290,  # read only, as a primary is that has just stepped down
        1317,  # query was killed
        1792,  # read-only transaction
        1836,  # read-only mode
        1969,  # MariaDB: statement timed out
        2002,
        2003,
        2005,
        3024,  # statement timed out
        3572,
    ),
    Fault.DUPLICATE: (
        1022,
        1062,
        1586,
    ),
    Fault.REFUSED: (
        1048,  # NULL in a column that has none
        1216,
        1263,
        1264,  # out of range
        1265,  # truncated
        1292,  # no such date
        1300,  # not in this character set
        1364,  # a column without default got no value
        1366,  # not of this type
        1367,
        1406,  # too long
        1411,
        1416,
        1441,
        1452,  # foreign key
        1526,  # no partition for it
        1644,  # a trigger raised it
        1690,
        3140,  # not JSON
        3819,  # check constraint
        3848,
        4025,  # MariaDB: check constraint
    ),
    Fault.MISCONFIGURED: (
        1044,
        1045,
        1049,
        1054,
        1064,
        1142,
        1143,
        1146,
        1227,
        1231,
        1251,
        1524,
        1698,
    ),
}
_BY_CODE = {code: fault for fault, codes in _FAULTS.items() for code in codes}

ROLLED_BACK_AT_COMMIT = frozenset((1020, 1205, 1213, 1290, 1792, 1836))
"""The only answers to a commit that leave no doubt."""

_HINTS = {
    1044: "grant this user SELECT, INSERT, UPDATE and DELETE on the database",
    1045: "check user and password",
    1049: "create the database, or correct the URL",
    1054: "correct the column's name; if the ledger's table lacks it, compare that with `oncesink init`",
    1142: "grant this user SELECT, INSERT, UPDATE and DELETE on the table",
    1143: "grant this user SELECT, INSERT, UPDATE and DELETE on the table",
    1146: "create it with `oncesink init --apply`, or by its own DDL if it is yours",
    1698: "check user and password",
}


def fault_of(error: Exception) -> Fault:
    """Judge an error of the driver by its code, or, where the code is not listed, by its type."""
    import pymysql  # noqa: PLC0415

    code = code_of(error)
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code <= 0 or isinstance(error, pymysql.err.InterfaceError):
        return Fault.LOST
    if isinstance(error, (pymysql.err.DataError, pymysql.err.IntegrityError)):
        return Fault.REFUSED
    if isinstance(error, (pymysql.err.ProgrammingError, pymysql.err.NotSupportedError)):
        return Fault.MISCONFIGURED
    return Fault.BUSY


def code_of(error: Exception) -> int:
    """Return the error's number, 0 where the driver itself raised it without one."""
    code: Any = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def text_of(error: Exception) -> str:
    """Describe an error with its number, the server's words and what to do where that is known."""
    code = code_of(error)
    words = error.args[1] if len(error.args) > 1 else error
    hint = f" ({_HINTS[code]})" if code in _HINTS else ""
    return f"MySQL error {code}: {words}{hint}"
