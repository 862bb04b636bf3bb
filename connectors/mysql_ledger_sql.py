"""The ledger's statements as text: each value is a number of ours, or bytes of a known length in hexadecimal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from operator import itemgetter

from .contract import Claim, Finish, Row, Scope
from .mysql_literals import binaries, binary, binary_or_null, text

DIGEST_BYTES = 16
OCCURRENCE_BYTES = 255
PAYLOAD_BYTES = 2**24 - 1

_payload = itemgetter(3)


class LedgerStatements:
    """Builds statements on one table for one scope.

    Digests are looked up by their unique key and by no other: an UPDATE that went through the open rows instead would
    wait for those of others.
    """

    def __init__(self, table: str, scope: Scope) -> None:
        self._table = table
        self._by_digest = f"{table} FORCE INDEX (digest)"
        self._scope = f"{binary(scope.name.encode())},{scope.generation}"

    def insert_open(self, claims: Sequence[Claim], *, owner: bytes, lease_seconds: float) -> str:
        """Insert under a lease where absent."""
        rest = f",x'{sized(owner)}',{self._scope},0,UTC_TIMESTAMP(6),{_lease(lease_seconds)}"
        return self._insert("lease_until", claims, rest)

    def insert_finished(self, claims: Sequence[Claim], *, owner: bytes) -> str:
        """Insert finished where absent."""
        rest = f",x'{sized(owner)}',{self._scope},1,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6)"
        return self._insert("finished_at", claims, rest)

    def insert_results(self, finishes: Sequence[Finish], *, owner: bytes) -> str:
        """Insert finished with results where absent."""
        rest = f",x'{sized(owner)}',{self._scope},1,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6),"
        rows = [
            f"{_claim(each.claim)}{rest}{binary_or_null(each.result)},{binary_or_null(each.claim.payload)})"
            for each in finishes
        ]
        return self._insert_rows("finished_at,result,payload", rows)

    def _insert(self, columns: str, claims: Sequence[Claim], rest: str) -> str:
        if set(map(_payload, claims)) == {None}:
            return self._insert_rows(columns, [f"{_claim(each)}{rest})" for each in claims])
        rows = [f"{_claim(each)}{rest},{binary_or_null(each.payload)})" for each in claims]
        return self._insert_rows(f"{columns},payload", rows)

    def _insert_rows(self, columns: str, rows: list[str]) -> str:
        # IGNORE is safe here: all that it could swallow besides a row that is there was ruled out by the sizes.
        return (
            f"INSERT IGNORE INTO {self._table} (digest,occurrence,payload_hash,owner,scope,generation,state,created_at,"
            f"{columns}) VALUES {','.join(rows)}"
        )

    def select(self, digests: Sequence[bytes]) -> str:
        """Read rows as `row_of` takes them."""
        return (
            "SELECT digest,state,occurrence,owner,payload_hash,result,CAST(lease_until AS CHAR),"
            "TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),"
            "TIMESTAMPDIFF(MICROSECOND,COALESCE(finished_at,created_at),UTC_TIMESTAMP(6)) "
            f"FROM {self._by_digest} WHERE {_among(digests)}"
        )

    def take(self, digests: Sequence[bytes], *, seen: Row, owner: bytes, lease_seconds: float) -> str:
        """Give open rows another owner, if they are as one of them was seen."""
        return (
            f"UPDATE {self._by_digest} SET owner=x'{sized(owner)}',lease_until={_lease(lease_seconds)} "
            f"WHERE {_among(digests)} AND state=0 AND owner=x'{sized(seen.owner)}' "
            f"AND lease_until={text(str(seen.lease_until))}"
        )

    def reclaim(self, claim: Claim, *, owner: bytes) -> str:
        """Store another claim in an open row of this owner."""
        checked_claims([claim])
        return (
            f"UPDATE {self._by_digest} SET occurrence={binary_or_null(claim.occurrence)},"
            f"payload_hash={binary_or_null(claim.payload_hash)},payload={binary_or_null(claim.payload)} "
            f"WHERE {_among([claim.digest])} AND {_open(owner)}"
        )

    def finish(self, digests: Sequence[bytes], *, owner: bytes) -> str:
        """Mark open rows of this owner finished."""
        return f"UPDATE {self._by_digest} SET {_FINISHED} WHERE {_among(digests)} AND {_open(owner)}"

    def finish_results(self, finishes: Sequence[Finish], *, owner: bytes) -> str:
        """Mark open rows of this owner finished, each with its result."""
        digests = [each.claim.digest for each in finishes]
        cases = " ".join([f"WHEN {binary(each.claim.digest)} THEN {binary_or_null(each.result)}" for each in finishes])
        return (
            f"UPDATE {self._by_digest} SET {_FINISHED},result=CASE digest {cases} END "
            f"WHERE {_among(digests)} AND {_open(owner)}"
        )

    def delete(self, digests: Sequence[bytes], *, owner: bytes) -> str:
        """Delete open rows of this owner."""
        return f"DELETE {self._table} FROM {self._by_digest} WHERE {_among(digests)} AND {_open(owner)}"

    def forget(self, digests: Sequence[bytes]) -> str:
        """Delete rows, whatever their state and owner."""
        return f"DELETE {self._table} FROM {self._by_digest} WHERE {_among(digests)}"


_FINISHED = "state=1,lease_until=NULL,finished_at=UTC_TIMESTAMP(6)"


def row_of(
    values: tuple[bytes, str, bytes | None, bytes, bytes | None, bytes | None, str | None, str | None, str],
) -> Row:
    """Make a row of what `select` returned."""
    digest, state, occurrence, owner, payload_hash, result, lease_until, left, age = values
    left_seconds = 0.0 if left is None else int(left) / 1e6
    return Row(digest, state == "1", occurrence, owner, payload_hash, result, lease_until, left_seconds, int(age) / 1e6)


def checked_claims(claims: Iterable[Claim]) -> None:
    """Raise `ValueError` where a value would not fit its column, since the insert would cut it in silence."""
    for digest, occurrence, payload_hash, payload in claims:
        if len(digest) != DIGEST_BYTES or (payload_hash is not None and len(payload_hash) != DIGEST_BYTES):
            raise ValueError("a digest and a payload hash have 16 bytes")
        if occurrence is not None and len(occurrence) > OCCURRENCE_BYTES:
            raise ValueError(f"an occurrence has at most {OCCURRENCE_BYTES} bytes, not {len(occurrence)}")
        if payload is not None and len(payload) > PAYLOAD_BYTES:
            raise ValueError(f"a payload has at most {PAYLOAD_BYTES} bytes, not {len(payload)}")


def sized(owner: bytes) -> str:
    """Return an owner in hexadecimal, after a look at its length."""
    if len(owner) != DIGEST_BYTES:
        raise ValueError("an owner has 16 bytes")
    return owner.hex()


def _claim(claim: Claim) -> str:
    digest, occurrence, payload_hash, _ = claim
    return f"(x'{digest.hex()}',{binary_or_null(occurrence)},{binary_or_null(payload_hash)}"


def _among(digests: Sequence[bytes]) -> str:
    return f"digest IN ({binaries(digests)})"


def _open(owner: bytes) -> str:
    return f"state=0 AND owner=x'{sized(owner)}'"


def _lease(seconds: float) -> str:
    return f"UTC_TIMESTAMP(6)+INTERVAL {int(timedelta(seconds=seconds) / timedelta(microseconds=1))} MICROSECOND"
