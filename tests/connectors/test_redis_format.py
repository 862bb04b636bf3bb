"""The bytes in Redis, frozen: another version of the library reads what this one wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncesink.connectors.contract import Row
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.redis_format import Damaged, pack_claim, pack_payload, pack_tail, unpack
from oncesink.connectors.redis_ledger_session import unpack_row

HASH = bytes(range(16))
OWNER = b"owner-of-16-byte"
DIGEST = b"digest-of-16-byt"

occurrences = st.none() | st.binary(max_size=255)
hashes = st.none() | st.binary(min_size=16, max_size=16)
results = st.none() | st.binary(max_size=1000)


@pytest.mark.parametrize(
    ("occurrence", "payload_hash", "result", "expected"),
    [
        (None, None, None, "0000"),
        (b"", None, None, "0100"),
        (b"t/3/17", None, b"", "0106742f332f313700000000"),
        (None, HASH, None, "0200000102030405060708090a0b0c0d0e0f"),
        (b"t/3/17", HASH, b"ok", "0306742f332f3137000102030405060708090a0b0c0d0e0f000000026f6b"),
    ],
)
def test_golden_vectors(
    occurrence: bytes | None, payload_hash: bytes | None, result: bytes | None, expected: str
) -> None:
    """A change of these needs a new version byte."""
    assert (pack_claim(occurrence, payload_hash) + pack_tail(result)).hex() == expected


def test_golden_vectors_of_a_payload() -> None:
    """It stands between claim and tail, under a flag that versions without payloads refuse."""
    assert pack_payload(pack_claim(None, None), b"").hex() == "040000000000"
    value = pack_payload(pack_claim(b"t/3/17", HASH), b"record!") + pack_tail(b"ok")
    rest = "06742f332f3137000102030405060708090a0b0c0d0e0f"
    assert value.hex() == f"07{rest}00000007{b'record!'.hex()}000000026f6b"


@given(st.binary(max_size=40), occurrences, hashes, results, results)
def test_what_was_packed_is_read(
    head: bytes, occurrence: bytes | None, payload_hash: bytes | None, result: bytes | None, payload: bytes | None
) -> None:
    """Every claim, payload and result, behind a head of any length."""
    value = head + pack_payload(pack_claim(occurrence, payload_hash), payload) + pack_tail(result)
    assert unpack(value, len(head)) == (occurrence, payload_hash, result, payload)


@given(occurrences, hashes, results, st.binary(min_size=1, max_size=3))
def test_what_is_too_long_is_damaged(
    occurrence: bytes | None, payload_hash: bytes | None, result: bytes | None, more: bytes
) -> None:
    """Some bytes too many are never read as part of the result."""
    with pytest.raises(Damaged):
        unpack(pack_claim(occurrence, payload_hash) + pack_tail(result) + more, 0)


@given(occurrences, hashes, st.binary(max_size=100), st.data())
def test_what_was_cut_is_damaged(
    occurrence: bytes | None, payload_hash: bytes | None, result: bytes, data: st.DataObject
) -> None:
    """Except where nothing but the whole tail is gone, which looks like no result."""
    claim = pack_claim(occurrence, payload_hash)
    value = claim + pack_tail(result)
    length = data.draw(st.integers(0, len(value) - 1).filter(lambda length: length != len(claim)))
    with pytest.raises(Damaged):
        unpack(value[:length], 0)


@pytest.mark.parametrize(("occurrence", "payload_hash"), [(bytes(256), None), (None, bytes(15)), (b"", bytes(17))])
def test_what_does_not_fit_is_refused(occurrence: bytes | None, payload_hash: bytes | None) -> None:
    """It would be read as something else."""
    with pytest.raises(ValueError, match="bytes, not"):
        pack_claim(occurrence, payload_hash)


def test_golden_rows_of_the_ledger() -> None:
    """An open and a finished row, as another version wrote them."""
    opened = bytes.fromhex("016f" + OWNER.hex() + "00000000000f4240" + "0000000000000064" + "0301612a" + "00" * 15)
    assert unpack_row(DIGEST, opened, 200) == Row(
        digest=DIGEST,
        finished=False,
        occurrence=b"a",
        owner=OWNER,
        payload_hash=b"*" + bytes(15),
        result=None,
        lease_until=1_000_000,
        lease_left_seconds=0.9998,
        age_seconds=0.0001,
    )
    finished = bytes.fromhex("0166" + OWNER.hex() + "00" * 8 + "0000000000000064" + "0000" + "00000001" + "21")
    assert unpack_row(DIGEST, finished, 2_000_100) == Row(
        digest=DIGEST,
        finished=True,
        occurrence=None,
        owner=OWNER,
        payload_hash=None,
        result=b"!",
        lease_until=None,
        lease_left_seconds=0.0,
        age_seconds=2.0,
    )


@pytest.mark.parametrize("value", [b"", b"PROCESSED", b"\x02f" + bytes(40), b"\x01x" + bytes(40), b"\x01f" + bytes(20)])
def test_a_row_that_cannot_be_read_stops_the_job(value: bytes) -> None:
    """To take it for absent, or for finished, would write twice or lose a record."""
    with pytest.raises(Misconfigured, match="another version or program"):
        unpack_row(DIGEST, value, 0)
