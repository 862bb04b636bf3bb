"""Whose an audit file is: locked by the session that writes it or feeds it back, and deserted once that died."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from .errors import Unavailable

_TRIES = 100
"""Of a millisecond each: whoever looks whether a writer is gone holds a lock for that moment."""


class AuditTrouble(Unavailable):
    """The folder or a file in it does not do what it did before."""


def changed_at(path: Path) -> int:
    """Return when its last line was written, in nanoseconds; 0 for a file that is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def locked(path: Path) -> int | None:
    """Return a descriptor that holds the file's lock, None where it is somebody's, or has just been retired."""
    descriptor = _open(path)
    if descriptor is None:
        return None
    for _ in range(_TRIES):
        if _flock(descriptor, fcntl.LOCK_EX):
            if path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
            break
        if not _flock(descriptor, fcntl.LOCK_SH):
            break
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(0.001)
    os.close(descriptor)
    return None


def deserted(path: Path) -> int | None:
    """Return a descriptor without a lock, None where the file's writer lives, or it has just been retired."""
    descriptor = _open(path)
    if descriptor is None:
        return None
    if _flock(descriptor, fcntl.LOCK_SH):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return descriptor
    os.close(descriptor)
    return None


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AuditTrouble(f"the audit {path} cannot be opened: {error.strerror}; give its rights back") from error


def _flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
