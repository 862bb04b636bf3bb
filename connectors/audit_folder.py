"""Where a ledger that is away keeps what was done without it: a folder of JSON lines on this machine.

| name | what |
|---|---|
| `<scope>-<random>.open.jsonl` | not in the ledger yet; locked by the session that writes it, free once that died |
| `<scope>-<random>.fed.jsonl` | fed back: the audit that is left, to be deleted by hand |
| `<scope>.json` | the scope as the ledger registered it, for a start while it is away |

A line is on disk before the call that it tells of is made. The last line of a writer that died may be torn: then its
call was not made.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .audit_locks import AuditTrouble, changed_at, deserted, locked
from .contract import Claim, Scope
from .errors import Misconfigured, OutcomeUnknown, Unavailable
from .scopes import encode

log = logging.getLogger("oncesink")

Did = Literal["claimed", "taken", "finished", "released"]


class AuditEntry(NamedTuple):
    """One change of a row. `lease_seconds` is None where it is finished; `former` is the owner that a taken row had."""

    did: Did
    owner: bytes
    claim: Claim
    lease_seconds: float | None = None
    result: bytes | None = None
    former: bytes | None = None


class AuditFolder:
    """The files of one scope."""

    def __init__(self, folder: str, scope: Scope) -> None:
        self._folder = Path(folder)
        self._scope = scope
        name = f"{scope.use.value}\0{scope.name}\0{scope.generation}"
        readable = re.sub(r"[^A-Za-z0-9_.-]", "_", scope.name)[:40]
        self._stem = f"{readable}-{blake2b(name.encode(), digest_size=6).hexdigest()}"

    def prove(self) -> None:
        """Make the folder and see that it takes files. Raises `Misconfigured`."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            probe = self._folder / f"{self._stem}-{secrets.token_hex(8)}.probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise Misconfigured(f"audit={self._folder} takes no files: {error.strerror}") from error

    def create(self) -> AuditFile:
        """Begin a file, locked from before it has its name. Raises `Unavailable`."""
        path = self._folder / f"{self._stem}-{secrets.token_hex(8)}.open.jsonl"
        new = path.with_suffix(".new")
        descriptor = None
        try:
            descriptor = os.open(new, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(path)
            _sync(self._folder)
        except OSError as error:
            if descriptor is not None:
                # Its lock would keep the file from everybody for as long as the process lives.
                os.close(descriptor)
            raise AuditTrouble(
                f"no audit file can be made in {self._folder}: {error.strerror}; see to the folder: nothing is written"
            ) from error
        return AuditFile(path, descriptor, self._scope)

    def orphans(self) -> Iterator[AuditFile]:
        """Yield the files whose writer is gone, locked; whoever takes one closes or retires it."""
        yield from self._opened(locked)

    def left_behind(self) -> Iterator[AuditFile]:
        """Yield the same files, but not locked: to be read and closed, others may feed them back."""
        yield from self._opened(deserted)

    def _opened(self, how: Callable[[Path], int | None]) -> Iterator[AuditFile]:
        # By their last lines: a session takes over what those before it left open.
        found = [(changed_at(path), path) for path in self._folder.glob(f"{self._stem}-*.open.jsonl")]
        for _, path in sorted(found):
            descriptor = how(path)
            if descriptor is not None:
                yield AuditFile(path, descriptor, self._scope)

    def remember(self, ledger_id: bytes) -> None:
        """Keep the scope as the ledger knows it. Raises `Unavailable`."""
        told = {"ledger_id": ledger_id.hex(), "meaning": encode(self._scope.meaning)}
        if self._told() == told:
            return
        new = self._folder / f"{self._stem}-{secrets.token_hex(8)}.new"
        try:
            new.write_text(json.dumps(told), encoding="utf-8")
            new.replace(self._folder / f"{self._stem}.json")
        except OSError as error:
            raise Unavailable(f"{self._folder} takes no files: {error.strerror}") from error

    def recall(self) -> bytes | None:
        """Return the ledger's id if this very scope was opened here before."""
        told = self._told()
        same = told is not None and told.get("meaning") == encode(self._scope.meaning)
        return bytes.fromhex(told["ledger_id"]) if told is not None and same else None

    def _told(self) -> dict[str, Any] | None:
        try:
            told: dict[str, Any] = json.loads((self._folder / f"{self._stem}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return told

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._folder}/{self._stem}>"


class AuditFile:
    """One file, locked as long as it is open: the lock ends with a process that dies."""

    def __init__(self, path: Path, descriptor: int, scope: Scope) -> None:
        self.path = path
        self._descriptor = descriptor
        self._scope = scope

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Bring entries to disk, all or none. Raises `Unavailable`; `OutcomeUnknown` if they may be there or not."""
        now = datetime.now(tz=timezone.utc).isoformat()
        lines = b"".join([_line(each, self._scope, now) for each in entries])
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0:
            raise AuditTrouble(f"the audit {self.path} was removed: nothing is written before the ledger is back")
        end = status.st_size
        try:
            _write(self._descriptor, lines)
        except OSError as error:
            os.ftruncate(self._descriptor, end)
            raise Unavailable(f"the audit {self.path} cannot grow: {error.strerror}") from error
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise OutcomeUnknown(f"the audit {self.path} is perhaps not on disk: {error.strerror}") from error

    def entries(self) -> Iterator[AuditEntry]:
        """Read it from the beginning, even if it was removed meanwhile.

        Raises `Misconfigured` for a line that nobody wrote, `Unavailable` where the disk does not give it.
        """
        for number, line in enumerate(self._lines(), 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _entry(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise Misconfigured(f"line {number} of the audit {self.path} is damaged: {error}") from error

    def _lines(self) -> Iterator[bytes]:
        try:
            with open(self._descriptor, "rb", closefd=False) as file:
                file.seek(0)
                yield from file
        except OSError as error:
            raise AuditTrouble(f"the audit {self.path} cannot be read: {error.strerror}; see to its disk") from error

    def retire(self) -> None:
        """Mark it as fed back, and close it. Raises `Unavailable` where the folder does not take the new name."""
        try:
            self.path.rename(self.path.with_name(self.path.name.replace(".open.jsonl", ".fed.jsonl")))
        except FileNotFoundError:
            log.warning("the audit %s was removed: all of it was fed back, and no file is left of it", self.path)
        except OSError as error:
            raise AuditTrouble(
                f"the audit {self.path} was fed back and cannot be renamed: {error.strerror}; let its folder take files"
            ) from error
        # A name that is lost with the power leads to its being fed once more, which changes nothing.
        with suppress(OSError):
            _sync(self.path.parent)
        self.close()

    def close(self) -> None:
        """Let go of it: another session may feed it back."""
        os.close(self._descriptor)


def _line(entry: AuditEntry, scope: Scope, now: str) -> bytes:
    digest, occurrence, payload_hash, payload = entry.claim
    told = {
        "did": entry.did,
        "at": now,
        "scope": scope.name,
        "use": scope.use.value,
        "generation": scope.generation,
        "digest": digest.hex(),
        "occurrence": _hex(occurrence),
        "payload_hash": _hex(payload_hash),
        "owner": entry.owner.hex(),
        "lease_seconds": entry.lease_seconds,
    }
    more = {"payload": payload, "result": entry.result, "former": entry.former}
    told |= {name: value.hex() for name, value in more.items() if value is not None}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def _entry(told: dict[str, Any]) -> AuditEntry:
    parts = [_bytes(told.get(name)) for name in ("occurrence", "payload_hash", "payload")]
    return AuditEntry(
        did=told["did"],
        owner=bytes.fromhex(told["owner"]),
        claim=Claim(bytes.fromhex(told["digest"]), *parts),
        lease_seconds=told["lease_seconds"],
        result=_bytes(told.get("result")),
        former=_bytes(told.get("former")),
    )


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
