"""What a scope means, as its store remembers it, and whether a session may open it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple, Protocol

from .contract import Scope
from .errors import Misconfigured, Unavailable

TABLES_FORMAT = 1
"""Version of the tables; a store that says more was written by a newer library."""

ATTEMPTS = 5


class Registered(NamedTuple):
    """A scope as it stands in the store."""

    tables_format: int
    generation: int
    meaning: str
    ledger_id: bytes
    retention_seconds: int | None


class ScopeStore(Protocol):
    """The three statements that a store needs for its scopes, one row for each (scope, use)."""

    def insert(self, scope: Scope, row: Registered) -> None:
        """Insert the row unless there is one."""
        ...

    def load(self, scope: Scope) -> Registered | None: ...

    def replace(self, scope: Scope, row: Registered, *, seen: Registered) -> None:
        """Store generation, meaning and retention, if generation and meaning are still as seen."""
        ...


def register(store: ScopeStore, scope: Scope, *, retention: timedelta | None) -> bytes:
    """Register a scope, or compare it with what is registered; return its ledger id. Raises `Misconfigured`."""
    seconds = None if retention is None else int(retention.total_seconds())
    wanted = Registered(TABLES_FORMAT, scope.generation, encode(scope.meaning), secrets.token_bytes(16), seconds)
    for _ in range(ATTEMPTS):
        stored = store.load(scope)
        if stored is None:
            store.insert(scope, wanted)
        elif not must_replace(scope, stored.generation, stored.meaning, stored.tables_format):
            if stored.retention_seconds == seconds:
                return stored.ledger_id
            store.replace(scope, wanted, seen=stored)
        else:
            store.replace(scope, wanted, seen=stored)
    raise Unavailable(f"scope {scope.name!r} was changed by others all the time")


def must_replace(scope: Scope, generation: int, meaning: str, tables_format: int = TABLES_FORMAT) -> bool:
    """Tell whether the stored row gives way to a higher generation. Raises `Misconfigured` where neither fits."""
    if tables_format > TABLES_FORMAT:
        raise Misconfigured(f"the tables are of format {tables_format}, this library knows {TABLES_FORMAT}: update it")
    if scope.generation > generation:
        return True
    if scope.generation < generation:
        raise Misconfigured(
            f"scope {scope.name!r} ({scope.use.value}) is at generation {generation}; "
            f"generation={scope.generation} would write again what is written: raise it"
        )
    changed = differences(decode(meaning), scope.meaning)
    if changed:
        raise Misconfigured(
            f"scope {scope.name!r} ({scope.use.value}) means something else: {'; '.join(changed)}. "
            "Choose another scope, or raise generation= to process on purpose what was processed"
        )
    return False


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Name each item that differs, with both values."""
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return [f"{name} was {old.get(name)!r}, is {new.get(name)!r}" for name in names]


def encode(meaning: Mapping[str, str]) -> str:
    """Return the text that is stored: a JSON object with sorted names."""
    return json.dumps(dict(meaning), sort_keys=True, ensure_ascii=False)


def decode(text: str) -> Mapping[str, str]:
    """Return what `encode` took."""
    meaning = json.loads(text)
    return {str(name): str(value) for name, value in meaning.items()}
