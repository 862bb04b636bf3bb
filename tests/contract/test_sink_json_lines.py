"""The suite on JSON lines as a plain sink."""

import json
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors.contract import Sink
from oncesink.connectors.json_lines_sink import JsonLinesSink

from tests.contract.outside_contract import OutsideContract


class TestJsonLinesSink(OutsideContract):
    """A file on this machine; nothing is refused."""

    refuses = False

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        """Give an empty folder."""
        self.path = tmp_path / "lines.jsonl"

    def make(self) -> Sink:
        """Return the recipe."""
        return JsonLinesSink(str(self.path))

    def effects(self) -> list[Any]:
        """Return the lines."""
        return [json.loads(line) for line in self.path.read_bytes().splitlines()] if self.path.exists() else []
