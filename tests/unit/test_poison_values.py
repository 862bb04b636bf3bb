"""Values that no table can hold: each is rejected by name, whoever converts it, and never ends a job."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from oncesink.connectors import Rejected
from oncesink.connectors.mysql_literals import encoded, literal
from oncesink.connectors.rows import fields_of
from oncesink.connectors.sqlite_values import CONVERTERS
from oncesink.connectors.versioned import version_of

LAST = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
FIRST = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))


class Unreadable:
    """A record whose own reader fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def as_dict(self) -> Any:
        """Fail."""
        raise self.error


def nested(depth: int) -> list[Any]:
    """Make a list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def converted(value: object) -> object:
    """Convert a value for SQLite."""
    return CONVERTERS[type(value)](value)


BAD = [
    (LAST, "out_of_range"),
    (FIRST, "out_of_range"),
    (Decimal("1E+20000000"), "out_of_range"),
    (nested(100_000), "wrong_type"),
    ({"a": nested(100_000)}, "wrong_type"),
]


@pytest.mark.parametrize(("value", "reason"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("convert", [literal, converted])
def test_what_no_table_holds_is_rejected(convert: Any, value: object, reason: str) -> None:
    """With its reason, and at once."""
    with pytest.raises(Rejected) as rejected:
        convert(value)
    assert rejected.value.reason == reason


@pytest.mark.parametrize(
    "value", [10**65, -(10**65), 10**5000, 10**100, Decimal(10**65), Decimal("-1E+400")], ids=range(6)
)
def test_a_number_that_mysql_would_change_in_silence_is_rejected(value: object) -> None:
    """It reads one of more than 81 digits as 65 nines, without a warning, and promises 65."""
    with pytest.raises(Rejected) as rejected:
        literal(value)
    assert rejected.value.reason == "out_of_range"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**65 - 1, "9" * 65),
        (Decimal(1 - 10**65), "-" + "9" * 65),
        (Decimal("0.1"), "0.1"),
        (Decimal("1E-72"), "0." + "0" * 71 + "1"),
        (Decimal("1E-20000000"), "0." + "0" * 72),
        (Decimal("0." + "1" * 90), "0." + "1" * 72),
    ],
    ids=range(6),
)
def test_a_number_is_written_with_the_digits_that_mysql_reads(value: object, text: str) -> None:
    """No exponent, and no millions of zeros."""
    assert literal(value) == text


@pytest.mark.parametrize("value", [LAST, FIRST])
def test_a_version_that_is_none_in_utc_is_rejected(value: datetime) -> None:
    """As any value of that kind."""
    with pytest.raises(Rejected) as rejected:
        version_of(value, "datetime", "changed")
    assert rejected.value.reason == "out_of_range"


@pytest.mark.parametrize("error", [KeyError, ValueError, TypeError, ZeroDivisionError])
def test_a_record_that_cannot_tell_its_fields_is_rejected(error: type[Exception]) -> None:
    """Whatever its own reader raises over its content."""
    with pytest.raises(Rejected, match=error.__name__) as rejected:
        fields_of(Unreadable(error("x")))
    assert rejected.value.reason == "wrong_type"


@pytest.mark.parametrize("value", [chr(0xD800), chr(0xDC80)])
def test_a_statement_with_half_a_character_is_rejected(value: str) -> None:
    """None is sent with another byte in its place."""
    with pytest.raises(Rejected) as rejected:
        encoded(f"SELECT {literal(value)}")
    assert rejected.value.reason == "not_unicode"
