"""Whole files under a URL: on this machine and elsewhere, there or not there, never half."""

from pathlib import Path

import fsspec
import pytest
from oncesink.connectors.errors import Misconfigured, Unavailable
from oncesink.connectors.file_folder import FileFolder


@pytest.fixture(params=["path", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give folders that do not exist yet, of several kinds."""
    if request.param == "memory":
        return f"memory://{tmp_path.name}/filters"
    return str(tmp_path / "deep" / "filters") if request.param == "path" else (tmp_path / "filters").as_uri()


def names(url: str) -> list[str]:
    """Return the names of all files there."""
    system, path = fsspec.core.url_to_fs(url)
    return sorted(Path(each).name for each in system.ls(path, detail=False))


def test_files_are_written_replaced_read_and_removed(url: str) -> None:
    """What was replaced is gone, and no passing name stays."""
    folder = FileFolder(url)
    assert folder.read("a") is None
    folder.write("a", b"one")
    folder.write("a", b"two")
    folder.write("b", bytes(1000))
    assert folder.read("a") == b"two"
    assert names(url) == ["a", "b"]
    folder.remove("a")
    folder.remove("a")
    assert names(url) == ["b"]


def test_a_writer_that_died_leaves_the_old_file(tmp_path: Path) -> None:
    """What it left under the passing name is written over by the next."""
    folder = FileFolder(str(tmp_path))
    folder.write("a", b"old")
    (tmp_path / "a.part").write_bytes(b"half of the n")
    assert folder.read("a") == b"old"
    folder.write("a", b"new")
    assert folder.read("a") == b"new"
    assert names(str(tmp_path)) == ["a"]


def test_trouble_of_any_kind_may_pass(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="cannot be reached"):
        FileFolder(str(tmp_path / "file")).write("a", b"")


@pytest.mark.parametrize("url", ["s4://bucket/a", "nowhere+here://x"])
def test_an_unknown_file_system_is_a_persons_work(url: str) -> None:
    """It will not pass."""
    with pytest.raises(Misconfigured, match="fsspec does not open"):
        FileFolder(url)


@pytest.mark.parametrize("url", ["s3://key:s3cret@bucket/a", "https://files/a?sig=s3cret"])
def test_a_url_with_a_credential_is_refused_and_not_repeated(url: str) -> None:
    """It would stand in a gate's repr, in logs and in errors."""
    with pytest.raises(Misconfigured, match="holds no password") as caught:
        FileFolder(url)
    assert "s3cret" not in str(caught.value)
