"""What filters see of a batch."""

import numpy as np
import numpy.typing as npt
import pytest
from mmh3 import mmh3_x64_128_digest
from oncesink.transforms.membership import Keys, fingerprint, unpack

from tests.unit.membership.material import digests, frozen_digests


def test_fingerprints_are_frozen() -> None:
    """Stored filters and logs depend on this hash: it is MurmurHash3 x64-128, seed 0, little-endian, for ever."""
    first, second = Keys(frozen_digests(2)).fingerprints.tolist()
    assert first == [16952976229728276326, 6478278936277654199]
    assert second == [12095531891586905265, 17826940772505666927]


def test_one_key_and_a_batch_are_hashed_alike() -> None:
    """An engine that logs a record at a time writes what another writes a batch at a time."""
    some = digests(50)
    assert [fingerprint(digest) for digest in some] == Keys(some).fingerprints[:, 0].tolist()


def test_an_empty_batch_has_an_empty_view() -> None:
    """No keys are no special case."""
    assert Keys([]).fingerprints.shape == (0, 2)


def test_views_are_made_once() -> None:
    """Filter after filter may ask; the batch is hashed once."""
    keys = Keys(digests(3), ids=[1, 2, 3])
    assert keys.fingerprints is keys.fingerprints
    assert keys.integers is keys.integers


@pytest.mark.parametrize("selection", [np.array([True, False, True, False]), np.array([0, 2]), np.array([False] * 4)])
@pytest.mark.parametrize("hashed_before", [True, False])
def test_a_part_of_a_batch_keeps_its_views(
    selection: npt.NDArray[np.bool_] | npt.NDArray[np.int64], *, hashed_before: bool
) -> None:
    """A part has the views of its own digests, and is not hashed again."""
    keys = Keys(digests(4), ids=[10, 20, 30, 40])
    if hashed_before:
        assert len(keys.fingerprints) == 4
    taken = keys.take(selection)
    assert ("not hashed" in repr(taken)) is not hashed_before
    assert list(taken.digests) == [keys.digests[at] for at in np.arange(4)[selection]]
    assert taken.fingerprints.tolist() == keys.fingerprints[selection].tolist()
    assert taken.integers.tolist() == np.array([10, 20, 30, 40])[selection].tolist()


def test_a_mask_of_another_length_is_refused() -> None:
    """A mask that belongs to another batch is not cut to fit in silence."""
    with pytest.raises(IndexError, match="a mask of 2 does not fit 3 keys"):
        Keys(digests(3)).take(np.array([True, True]))


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        (None, TypeError, "have no ids"),
        ([1, "2"], TypeError, "id 1 is '2', a str"),
        ([1, 2.0], TypeError, "id 1 is 2.0, a float"),
        ([True, 2], TypeError, "id 0 is True, a bool"),
        ([1, None], TypeError, "id 1 is None"),
        ([2**63, 1], OverflowError, "id 0 is 9223372036854775808"),
        ([1, -(2**63) - 1], OverflowError, "id 1 is -9223372036854775809"),
    ],
)
def test_keys_that_are_no_integers_are_named(ids: list[int] | None, error: type[Exception], says: str) -> None:
    """A filter over numbers says which key is none, instead of rounding or wrapping it."""
    with pytest.raises(error, match=says):
        _ = Keys(digests(2), ids=ids).integers


def test_all_64_bit_integers_are_taken_as_they_are() -> None:
    """The ends of the range are numbers like all others."""
    ids = [-(2**63), 0, 2**63 - 1]
    assert Keys(digests(3), ids=ids).integers.tolist() == ids


def test_ids_belong_to_their_digests() -> None:
    """Two lists of different lengths are refused at once."""
    with pytest.raises(ValueError, match="3 digests and 2 ids"):
        Keys(digests(3), ids=[1, 2])


def test_a_log_of_fingerprints_and_one_of_whole_hashes_read_alike() -> None:
    """Both forms give the first half of the hash."""
    some = digests(5)
    whole = b"".join(map(mmh3_x64_128_digest, some))
    short = b"".join(fingerprint(digest).to_bytes(8, "little") for digest in some)
    assert unpack(short).tolist() == unpack(whole, width_bytes=16).tolist() == [fingerprint(digest) for digest in some]


@pytest.mark.parametrize(("raw", "width_bytes"), [(bytes(12), 8), (bytes(24), 16), (bytes(8), 4)])
def test_a_part_of_a_fingerprint_is_refused(raw: bytes, width_bytes: int) -> None:
    """A torn log is an error, not a shorter log."""
    with pytest.raises(ValueError, match="bytes"):
        unpack(raw, width_bytes=width_bytes)
