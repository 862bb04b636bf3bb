"""The stored form of a filter: frozen, the same everywhere, and refused when anything is wrong with it."""

import os
import pickle
import random
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest
from oncesink.transforms.membership import (
    Bloom,
    FilterDamaged,
    FilterMismatch,
    FilterTooLarge,
    FilterUnusable,
    Keys,
    Occupancy,
)

from tests.unit.membership.material import digests, frozen_digests

SMALL = Bloom(capacity=20, error_rate=0.01)

ASK = """
import sys
from pathlib import Path
from oncesink.transforms.membership import Bloom, Keys
live = Bloom(capacity=1000, error_rate=0.01).load(Path(sys.argv[1]).read_bytes())
raw = Path(sys.argv[2]).read_bytes()
answers = live.query(Keys([raw[at : at + 16] for at in range(0, len(raw), 16)]))
live.add(Keys([bytes(16)]))
print(answers.tobytes().hex(), live.to_bytes().hex())
"""


def stored(recipe: Bloom = SMALL, keys: int = 20) -> bytes:
    """Return a filter with keys, stored."""
    live = recipe.create()
    live.add(Keys(frozen_digests(keys)))
    return live.to_bytes()


def resealed(form: bytes, at: int, value: bytes) -> bytes:
    """Return a stored form with other bytes in it and a checksum that fits: what another release might write."""
    changed = bytearray(form)
    changed[at : at + len(value)] = value
    changed[12:16] = bytes(4)
    changed[12:16] = crc32(changed).to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize(
    ("error_rate", "length", "expected"),
    [
        (0.01, 1408, "85f5decd86b6456df278bd36f5464bd770fa842f831d7b840ad4da194e074863"),
        (0.001, 2112, "285a1db8d51f01431b37945352c44e89d834c4ab4119305fe4d65f153da21668"),
        (0.0001, 2944, "d6df233839c906c861df1dd4e51b8062acc1d52860f5790eac980bbf96a5a81a"),
    ],
)
def test_the_stored_form_is_frozen(error_rate: float, length: int, expected: str) -> None:
    """Filters lie in users' savepoints: whoever writes other bytes for the same keys needs another version number."""
    form = stored(Bloom(capacity=1000, error_rate=error_rate), keys=1000)
    assert len(form) == length
    assert sha256(form).hexdigest() == expected


def test_the_header_is_frozen() -> None:
    """Magic, version, layout, probes, checksum, capacity, error rate, blocks, set bits; all little-endian."""
    fields = (
        *("896f6e636562660a", "0100", "01", "03", "faf747c5", "e803000000000000", "fca9f1d24d62503f"),
        *("2000000000000000", "f31a000000000000", "00000000000000000000000000000000"),
    )
    assert stored(Bloom(capacity=1000, error_rate=0.001), keys=1000)[:64].hex() == "".join(fields)


def test_the_order_of_keys_leaves_no_trace() -> None:
    """Equal content is equal bytes, however it came about."""
    keys = digests(500)
    shuffled = random.Random(3).sample(keys, len(keys))
    live, other = (Bloom(capacity=500, error_rate=0.001).create() for _ in range(2))
    live.add(Keys(keys))
    for digest in shuffled:
        other.record(Keys([digest]))
    assert live.to_bytes() == other.to_bytes()


def test_a_loaded_filter_goes_on_as_the_old_one() -> None:
    """It answers the same, takes new keys, and leaves what it was loaded from alone."""
    form = stored()
    live = SMALL.load(form)
    assert live.to_bytes() == form
    assert len(form) == live.snapshot_bytes
    live.add(Keys(digests(10)))
    assert live.query(Keys(frozen_digests(20) + digests(10))).all()
    assert SMALL.load(form).to_bytes() == form


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_another_process_gives_the_same_answers(hash_seed: str, tmp_path: Path) -> None:
    """Nothing depends on the hash seed of a process: a filter from a checkpoint is worth something in the next run."""
    recipe = Bloom(capacity=1000, error_rate=0.01)
    form, asked = stored(recipe, keys=1000), frozen_digests(1000) + digests(20_000)
    (tmp_path / "filter").write_bytes(form)
    (tmp_path / "asked").write_bytes(b"".join(asked))
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", ASK, str(tmp_path / "filter"), str(tmp_path / "asked")]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    live = recipe.load(form)
    expected = live.query(Keys(asked))
    assert expected[:1000].all()
    assert expected.sum() < 1400
    live.add(Keys([bytes(16)]))
    assert shown == [expected.tobytes().hex(), live.to_bytes().hex()]


def test_every_flipped_bit_is_found() -> None:
    """Header, words, checksum and the zeros between them: no bit may change unseen."""
    form = stored()
    for at in range(len(form)):
        for bit in range(8):
            flipped = bytearray(form)
            flipped[at] ^= 1 << bit
            with pytest.raises(FilterDamaged):
                SMALL.load(bytes(flipped))


def test_every_truncation_is_found() -> None:
    """Whatever is missing at the end, and whatever stands there in excess."""
    form = stored()
    for length in range(len(form)):
        with pytest.raises(FilterDamaged, match="truncated"):
            SMALL.load(form[:length])
    with pytest.raises(FilterDamaged, match=r"129 bytes, and its header announces 128"):
        SMALL.load(form + b"\0")


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (b"", "truncated: 0 bytes"),
        (b"\x89PNG\r\n\x1a\n" + bytes(120), "not a Bloom filter of oncesink: it begins with b'.x89PNG"),
        (resealed(stored(), 8, b"\x02\0"), "format version 2, and this release reads 1: upgrade"),
        (resealed(stored(), 10, b"\x02"), "layout 2 with 2 probes is not known here"),
        (resealed(stored(), 11, b"\x09"), "layout 1 with 9 probes is not known here"),
        (resealed(stored(), 64, b"\x01")[:-1] + b"\x01", "the checksum does not fit"),
        (resealed(stored(), 32, bytes(8)), "header announces 64"),
        (resealed(stored(), 32, b"\xff" * 8), "truncated or damaged: 128 bytes"),
    ],
)
def test_the_error_says_what_is_wrong(form: bytes, says: str) -> None:
    """Foreign, newer and damaged are three things, with three things to do."""
    with pytest.raises(FilterDamaged, match=says):
        SMALL.load(form)


def test_a_filter_without_blocks_is_refused() -> None:
    """A header alone, with a checksum that fits, is no filter that could be asked."""
    with pytest.raises(FilterDamaged, match="no blocks"):
        SMALL.load(resealed(stored()[:64], 32, bytes(8)))


@pytest.mark.parametrize("recipe", [Bloom(capacity=21, error_rate=0.01), Bloom(capacity=20, error_rate=0.02)])
def test_a_filter_for_other_settings_is_named(recipe: Bloom) -> None:
    """Capacity and rate of both sides stand in the message."""
    with pytest.raises(FilterMismatch, match=r"made for capacity=20, error_rate=0\.01, and bloom\(capacity=2"):
        recipe.load(stored())


@pytest.mark.parametrize("kind", [FilterDamaged, FilterMismatch, FilterTooLarge, FilterUnusable])
def test_errors_survive_pickling(kind: type[FilterUnusable]) -> None:
    """They travel from worker to driver."""
    again = pickle.loads(pickle.dumps(kind("what is wrong")))
    assert type(again) is kind
    assert str(again) == "what is wrong"


def test_occupancy_survives_pickling() -> None:
    """It may be reported from a worker."""
    found = SMALL.load(stored()).occupancy()
    assert isinstance(found, Occupancy)
    assert pickle.loads(pickle.dumps(found)) == found
