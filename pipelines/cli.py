"""The `oncesink` command. Exit status 1: something is wrong; 2: it could not be done."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from oncesink.connectors.errors import OnceSinkError
from oncesink.pipelines.told_retries import told_retries

NEEDED = frozenset({"click", "rich", "typer"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. What this library raises on purpose becomes one line."""
    try:
        from oncesink.pipelines.commands import app  # noqa: PLC0415 - what it needs may be missing

        with told_retries():
            app(args=None if arguments is None else list(arguments), prog_name="oncesink")
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in NEEDED:
            raise
        return complain(f"the oncesink command needs {missing}: pip install 'oncesink[cli]'")
    except OnceSinkError as error:
        return complain(str(error))
    return 0


def complain(message: str) -> int:
    """Write one line to standard error; return the exit status that goes with it."""
    sys.stderr.write(f"oncesink: {' '.join(message.split())}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
