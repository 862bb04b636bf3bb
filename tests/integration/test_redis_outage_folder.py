"""The folder of audits fails or is removed in the middle of an outage: it is said, and what can be read is fed back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from oncesink.connectors import Unavailable, forget_all

from tests.integration.test_redis_outage import World, order, told
from tests.servers import RedisServer


@pytest.fixture
def world(redis_server: RedisServer, tmp_path: Path) -> World:
    """Give a Redis that may be stopped."""
    forget_all()
    return World(redis_server, tmp_path / "audit")


def test_an_audit_that_was_removed_is_fed_back_all_the_same(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """What is open can be read without its name; nothing is written meanwhile that no other session would find."""
    with world.writer() as writer:
        world.server.kill()
        assert told(writer.write([order("a")])) == (1, 0, 0)
        shutil.rmtree(world.folder)
        with pytest.raises(Unavailable, match="was removed: nothing is written"):
            writer.write([order("b")])
        assert world.effects() == ["a"]
        world.server.start()
        world.clock.sleep(60)
        assert told(writer.write([order("a"), order("a", 1), order("b")])) == (1, 1, 1)
        assert "all of it was fed back" in caplog.text
        world.server.kill()
        with pytest.raises(Unavailable, match=f"no audit file can be made in {world.folder}"):
            writer.write([order("c")])
        world.folder.mkdir()
        assert told(writer.write([order("c")])) == (1, 0, 0)
        world.server.start()
    assert world.effects() == ["a", "b", "c"]


@pytest.mark.parametrize(("name", "says"), [("_lines", "cannot be read"), ("retire", "cannot be renamed")])
def test_an_audit_whose_disk_fails_is_said_and_fed_back_later(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, says: str
) -> None:
    """Records go on with their audit until the disk is well again."""
    with world.writer() as writer:
        world.server.kill()
        writer.write([order("a")])
        world.server.start()
        world.clock.sleep(60)
        with monkeypatch.context() as patch:
            if name == "_lines":
                patch.setattr("builtins.open", ill)
            else:
                patch.setattr(Path, "rename", ill)
            assert told(writer.write([order("a"), order("b")])) == (1, 1, 0)
        assert says in caplog.text
        assert str(world.folder) in caplog.text
        assert list(world.folder.glob("*.open.jsonl"))
        world.clock.sleep(60)
        assert told(writer.write([order("a"), order("b", 1), order("c")])) == (1, 1, 1)
    assert not list(world.folder.glob("*.open.jsonl"))
    with world.writer() as another:
        assert told(another.write([order("a"), order("b"), order("c", 1)])) == (0, 2, 1)


def ill(*_: object, **__: object) -> None:
    """Fail as a disk does."""
    raise OSError(5, "input/output error")


def test_an_audit_that_may_not_be_opened_is_not_passed_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds must not be written again: a session starts when it can be read, or when Redis is told."""
    with world.writer() as writer:
        world.server.kill()
        writer.write([order("a")])
    (left,) = world.folder.glob("*.open.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr("oncesink.connectors.audit_locks.os.open", ill)
        with pytest.raises(Unavailable, match=f"{left} cannot be opened"):
            world.writer()
    with world.writer() as another:
        assert told(another.write([order("a"), order("a", 1)])) == (0, 1, 1)
        world.server.start()
