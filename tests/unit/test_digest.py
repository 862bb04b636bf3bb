"""The digest and the payload hash: frozen, and never shared by two scopes, uses or generations."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncesink.connectors import MemoryLedger
from oncesink.connectors.contract import Scope, Use
from oncesink.transforms import Content, Fields, Gate, SourcePosition
from oncesink.transforms.digest import DIGEST_BYTES, digest, digest_prefix
from oncesink.transforms.prepare import Item, Preparer

KEY = b"l2:s2:A1i7;"
RECORD = {"id": "A1", "version": 7, "amount": 5, "topic": "t", "partition": 0, "offset": 12}
POSITION = SourcePosition("s", "topic", "partition", "offset")

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
scopes = st.builds(
    lambda name, use, generation: Scope(name=name, use=use, generation=generation),
    names,
    st.sampled_from(Use),
    st.integers(1, 12),
)


def prepared(gate_options: dict[str, Any], record: Any) -> Item:
    gate = Gate(
        **{
            "scope": "orders",
            "key": Fields("id", "version"),
            "occurrence": POSITION,
            "ledger": MemoryLedger(),
            **gate_options,
        }
    )
    item = Preparer(gate, Scope(name="orders", use=Use.WRITE))(record)
    assert isinstance(item, Item), item
    return item


@pytest.mark.parametrize(
    ("scope", "prefix", "expected"),
    [
        (
            Scope(name="orders", use=Use.WRITE),
            b"\x01\x00\x00\x00\x05write\x00\x00\x00\x06orders\x00\x00\x00\x011",
            "5715f523c6567fa30860134613269515",
        ),
        (
            Scope(name="orders", use=Use.DROP),
            b"\x01\x00\x00\x00\x04drop\x00\x00\x00\x06orders\x00\x00\x00\x011",
            "c2e00079ece783de36e57ee725d52771",
        ),
        (
            Scope(name="orders", use=Use.WRITE, generation=2),
            b"\x01\x00\x00\x00\x05write\x00\x00\x00\x06orders\x00\x00\x00\x012",
            "96a41367b14a8e4931f22a5afef2272e",
        ),
        (
            Scope(name="zahlungen-é", use=Use.WRITE),
            b"\x01\x00\x00\x00\x05write\x00\x00\x00\x0czahlungen-\xc3\xa9\x00\x00\x00\x011",
            "d468b3f581f80c7ef45214de252e7fcd",
        ),
    ],
    ids=["write", "drop", "generation", "utf-8"],
)
def test_golden_vectors(scope: Scope, prefix: bytes, expected: str) -> None:
    """Format 1 is frozen: another digest would make every record of every user new."""
    assert digest_prefix(scope) == prefix
    assert digest(prefix, KEY).hex() == expected


def test_golden_vectors_of_a_prepared_record() -> None:
    """What reaches the ledger: digest, occurrence, and the hash of the content without where it stood."""
    item = prepared({}, RECORD)
    assert item.claim.digest.hex() == "5715f523c6567fa30860134613269515"
    assert item.claim.occurrence == b"l4:s1:ss1:ti0;ic;"
    assert item.claim.payload_hash is not None
    assert item.claim.payload_hash.hex() == "f63d1b5c9338d17c62cadcd2d68b0f7d"
    assert item.size == len(b"m3:s6:amounti5;s2:ids2:A1s7:versioni7;")


@given(st.lists(st.tuples(scopes, st.binary(max_size=6)), min_size=2, max_size=2))
def test_no_two_scopes_share_a_digest(pair: list[tuple[Scope, bytes]]) -> None:
    """Each part has its length in front, so that a name cannot reach into its neighbour."""
    (left, left_key), (right, right_key) = pair
    same = (left.name, left.use, left.generation, left_key) == (right.name, right.use, right.generation, right_key)
    assert (digest_prefix(left) + left_key == digest_prefix(right) + right_key) is same


def test_names_that_run_into_each_other_differ() -> None:
    """Scope `a1` of generation 1 is not scope `a` of generation 11, and no key turns one into the other."""
    scopes = [Scope(name=name, use=use, generation=n) for name, use, n in product(["a", "a1"], Use, [1, 11, 111])]
    digests = {digest(digest_prefix(scope), key) for scope, key in product(scopes, [b"", b"1", b"11"])}
    assert len(digests) == len(scopes) * 3
    assert {len(each) for each in digests} == {DIGEST_BYTES}


def test_the_payload_hash_leaves_out_what_tells_where_the_record_stood() -> None:
    """A second send of the same content is no conflict."""
    again = {**RECORD, "partition": 3, "offset": 99}
    assert prepared({}, again).claim.payload_hash == prepared({}, RECORD).claim.payload_hash
    assert prepared({}, again).claim.occurrence != prepared({}, RECORD).claim.occurrence
    other = {**RECORD, "amount": 6}
    assert prepared({}, other).claim.payload_hash != prepared({}, RECORD).claim.payload_hash


def test_the_payload_may_be_chosen() -> None:
    """A recipe hashes what it reads; `none` hashes nothing, and then nothing conflicts."""
    by_amount = {"payload": Fields("amount")}
    assert prepared(by_amount, RECORD).claim.payload_hash == prepared(by_amount, {**RECORD, "x": 1}).claim.payload_hash
    assert prepared({"payload": Content(without=("offset",))}, RECORD).claim.payload_hash is not None
    assert prepared({"payload": "none"}, RECORD).claim.payload_hash is None


def test_a_json_line_and_the_record_in_it_are_the_same() -> None:
    """The kind of record is no part of digest or payload hash."""
    line = b'{"offset": 12, "topic": "t", "partition": 0, "version": 7, "id": "A1", "amount": 5}'
    assert prepared({}, line).claim == prepared({}, RECORD).claim
    assert prepared({}, line.decode()).claim == prepared({}, RECORD).claim


def test_without_a_ledger_no_content_is_hashed() -> None:
    """Nobody would ever compare it."""
    assert prepared({"ledger": None}, RECORD).claim.payload_hash is None
