"""A process without state begins with the filters that were stored; whatever is wrong with them stops nothing."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.file_folder import FileFolder
from oncesink.transforms import Bloom, Fields, Gate, SourcePosition
from oncesink.transforms.cold_start import meaning_of
from oncesink.transforms.membership import FilterState, Keys, load_filters
from oncesink.transforms.membership.rebuilding import Rebuilding
from oncesink.transforms.membership.stored import MANIFEST, parse_manifest

from tests.unit.membership.material import digests
from tests.unit.scene import Scene, record
from tests.unit.stored_filters import store

BLOOM = Bloom(capacity=1000, error_rate=0.0001)
KNOWN = [record(str(number), number) for number in range(100)]
NEW = [record(f"new {number}", number) for number in range(100)]


def scene(folder: Path) -> Scene:
    """Return a writer's world whose gate begins with what is stored there."""
    return Scene("transactional", {"membership": BLOOM, "start_from": str(folder)})


def test_a_writer_begins_with_the_stored_filter(tmp_path: Path) -> None:
    """Keys in it are looked up before they are claimed, others are claimed at once."""
    it = scene(tmp_path)
    store(tmp_path, it.gate, it.sink, KNOWN, shards=1)
    it.write(*KNOWN, *NEW)
    assert (it.counts["filter_positive"], it.counts["filter_negative"]) == (100, 100)
    assert (it.counts["filter_started"], it.counts["filter_not_started"]) == (1, 0)


def damaged(folder: Path) -> None:
    """Flip a bit of a filter."""
    (file,) = folder.glob("*.filter")
    content = bytearray(file.read_bytes())
    content[200] ^= 4
    file.write_bytes(content)


def no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def no_file(folder: Path) -> None:
    next(folder.glob("*.filter")).unlink()


def no_json(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(b"{")


def newer(folder: Path) -> None:
    fields = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_text(json.dumps({**fields, "format": 99}), encoding="utf-8")


def foreign(folder: Path) -> None:
    fields = json.loads((folder / MANIFEST).read_bytes())
    fields["meaning"]["scope"] = "another"
    (folder / MANIFEST).write_text(json.dumps(fields), encoding="utf-8")


def short(folder: Path) -> None:
    fields = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_text(json.dumps({**fields, "files": []}), encoding="utf-8")


@pytest.mark.parametrize("trouble", [damaged, no_manifest, no_file, no_json, newer, foreign, short])
def test_what_cannot_be_used_is_counted_and_the_filter_starts_empty(
    tmp_path: Path, trouble: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Every record has its outcome all the same."""
    it = scene(tmp_path)
    store(tmp_path, it.gate, it.sink, KNOWN, shards=1)
    trouble(tmp_path)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING, "oncesink"):
        assert len(it.write(*KNOWN).written) == 100
    assert (it.counts["filter_started"], it.counts["filter_not_started"]) == (0, 1)
    assert it.counts["filter_negative"] == 100
    assert "starts empty" in caplog.text


def test_filters_for_engines_are_not_one_for_a_writer(tmp_path: Path) -> None:
    """A writer has one filter for all keys: those of sixteen shards are foreign to it."""
    it = scene(tmp_path)
    store(tmp_path, it.gate, it.sink, KNOWN)
    it.write(*KNOWN)
    assert it.counts["filter_not_started"] == 1


def test_a_filter_that_began_elsewhere_is_due_for_the_state_once() -> None:
    """Else the next worker would find a state without it."""
    stored = BLOOM.create()
    stored.add(Keys(digests(100)))
    state = FilterState(BLOOM, start=stored.to_bytes)
    assert state.due
    assert state.filter.query(Keys(digests(100))).all()
    assert FilterState(BLOOM, snapshot=state.compact()).filter.query(Keys(digests(100))).all()
    assert not state.due


@pytest.mark.parametrize("held", [{"snapshot": BLOOM.create().to_bytes()}, {"log": [bytes(8)]}])
def test_a_state_that_holds_anything_is_not_begun_anew(held: dict[str, object]) -> None:
    """What is stored is older."""

    def start() -> bytes:
        raise AssertionError("asked")

    assert not FilterState(BLOOM, start=start, **held).due  # type: ignore[arg-type]


def test_nothing_to_start_from_is_a_filter_like_any() -> None:
    """It is empty, and there is nothing to bring into the state."""
    assert not FilterState(BLOOM, start=lambda: None).due


def test_files_without_a_filter_are_refused() -> None:
    """The setting would do nothing."""
    with pytest.raises(Misconfigured, match="does nothing with membership=None"):
        Gate(scope="s", key=Fields("id"), occurrence=None, start_from="/filters")


def test_an_unknown_file_system_is_refused_at_the_start(tmp_path: Path) -> None:
    """A misspelt URL is no passing trouble."""
    it = Scene("transactional", {"membership": BLOOM, "start_from": "s4://bucket/filters"})
    with pytest.raises(Misconfigured, match="fsspec does not open s4"):
        it.writer()


def test_a_password_does_not_come_into_a_gate() -> None:
    """It would show in its `repr`."""
    with pytest.raises(Misconfigured) as refused:
        Gate(
            scope="s",
            key=Fields("id"),
            occurrence=SourcePosition("s", "o"),
            membership=BLOOM,
            start_from="ftp://me:hidden@host/x",
        )
    assert "hidden" not in str(refused.value)


def test_the_manifest_is_frozen(tmp_path: Path) -> None:
    """Names and form of what is stored; what reads it must not care who wrote it."""
    gate = replace(scene(tmp_path).gate, scope="orders")
    store(tmp_path, gate, scene(tmp_path).sink, KNOWN[:1], shards=1)
    stored = (tmp_path / MANIFEST).read_bytes()
    fields = json.loads(stored)
    assert list(fields) == ["format", "meaning", "source", "last_id", "keys", "run", "checkpoint", "files", "before"]
    assert fields["format"] == 1
    assert fields["meaning"] == {"scope": "orders", "generation": 1, "shards": 1, "filter": BLOOM.description}
    assert list(fields["files"][0]) == ["name", "bytes", "crc32", "keys"]
    assert parse_manifest(stored).to_json() == stored


class Flaky(FileFolder):
    """A folder whose every other write meets trouble that passes."""

    writes = 0

    def write(self, name: str, content: bytes) -> None:
        self.writes += 1
        if self.writes % 2:
            raise Unavailable("passing")
        super().write(name, content)


def test_a_rebuild_outlives_trouble_that_passes(tmp_path: Path) -> None:
    """Hours of reading are not lost to a request that would have gone through a second later."""
    gate = scene(tmp_path).gate
    run = Rebuilding(Flaky(str(tmp_path)), BLOOM, meaning=meaning_of(gate, shards=2), source="a test")
    run.add(digests(100), last_id=100)
    run.checkpoint()
    assert [each.keys > 0 for each in run.finish().files] == [True, True]
    assert len(load_filters(str(tmp_path), BLOOM, scope="orders", generation=1, shards=2)) == 2
