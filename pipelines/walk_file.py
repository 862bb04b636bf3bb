"""How far a walk over a table has come, in a file: replaced in one step, gone at the end."""

from __future__ import annotations

import json
import os
from pathlib import Path

from oncesink.connectors.errors import Misconfigured


class WalkFile:
    """The last id that is done, of one walk. A file of another walk is refused. Raises `Misconfigured`."""

    def __init__(self, path: Path, *, walk: str) -> None:
        self.path = path
        self._walk = walk

    def load(self) -> int | None:
        """Return the last id that is done, None where nothing is."""
        try:
            held = json.loads(self.path.read_bytes())
            walk, last_id = str(held["walk"]), int(held["last_id"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Misconfigured(f"{self.path} does not tell how far a walk has come: {error}; remove it") from error
        if walk != self._walk:
            raise Misconfigured(f"{self.path} is of another walk ({walk}): remove it, or choose another --progress")
        return last_id

    def save(self, last_id: int) -> None:
        """Store the last id that is done."""
        passing = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            passing.write_text(json.dumps({"walk": self._walk, "last_id": last_id}), encoding="utf-8")
            passing.replace(self.path)
        except OSError as error:
            raise Misconfigured(f"cannot store the progress in {self.path}: {error}") from error

    def remove(self) -> None:
        """Forget it: the walk is at its end."""
        self.path.unlink(missing_ok=True)
