"""Where lines are put: a file that grows, or one new object a batch."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from .clock import Clock
from .errors import Misconfigured, OutcomeUnknown, Unavailable
from .file_folder import file_system

_LOOK_SECONDS = 0.005
_MODE = 0o644


class LinePlace(Protocol):
    """Takes lines, a batch at a time."""

    def put(self, lines: bytes, timeout_seconds: float) -> None:
        """Keep whole lines, all or none. Raises `Unavailable` if surely none was kept, else `OutcomeUnknown`."""
        ...


class AppendedFile:
    """A file on this machine. Writers take turns, and each leaves whole lines behind."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        try:
            os.close(self._open())
            _sync_folder(path)
        except OSError as error:
            raise Misconfigured(
                f"cannot append to {path}: {error.strerror}; make its folder, or choose another path"
            ) from error

    def put(self, lines: bytes, timeout_seconds: float) -> None:
        try:
            descriptor = self._open()
        except OSError as error:
            raise Unavailable(f"cannot append to {self._path}: {error.strerror}") from error
        try:
            with self._turn(descriptor, timeout_seconds):
                self._append(descriptor, lines)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)

    @contextmanager
    def _turn(self, descriptor: int, timeout_seconds: float) -> Iterator[None]:
        """Hold the file's lock. It ends with the descriptor, and so with a process that dies."""
        deadline = self._clock.monotonic() + timeout_seconds
        while not _lock(descriptor):
            if self._clock.monotonic() >= deadline:
                raise Unavailable(f"{self._path} was locked by another writer for {timeout_seconds} s")
            self._clock.sleep(_LOOK_SECONDS)
        yield

    def _append(self, descriptor: int, lines: bytes) -> None:
        end = os.fstat(descriptor).st_size
        # A writer that died, or one that takes no turns, may have left a torn line: it must not swallow the next one.
        torn = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
        try:
            _write(descriptor, b"\n" + lines if torn else lines)
        except OSError as error:
            os.ftruncate(descriptor, end)
            raise Unavailable(f"cannot append to {self._path}: {error.strerror}") from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise OutcomeUnknown(f"{self._path} is perhaps not on disk: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"


class NewObjects:
    """A file system that fsspec knows; objects there are written whole or not at all."""

    def __init__(self, url: str) -> None:
        self._system, path = file_system(url)
        stem, dot, suffix = path.rpartition(".")
        self._stem, self._suffix = (stem, dot + suffix) if dot and "/" not in suffix else (path, "")
        try:
            self._system.exists(path)
        except PermissionError as error:
            raise Misconfigured(f"{url} refuses these credentials: {error}") from error
        except OSError as error:
            raise Unavailable(f"{url} cannot be reached: {error}") from error

    def put(self, lines: bytes, timeout_seconds: float) -> None:
        now = datetime.now(tz=timezone.utc)
        name = f"{self._stem}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(8)}{self._suffix}"
        try:
            self._system.pipe_file(name, lines)
        except OSError as error:
            raise OutcomeUnknown(f"{name} was perhaps written: {error}") from error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._stem}-*{self._suffix}>"


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(path: Path) -> None:
    """Bring a new file's name to disk as well."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
