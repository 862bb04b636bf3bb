"""The process that is killed: it writes batches of a pickled sink, and says after each that it is through."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress

from ..errors import OnceSinkError
from .subject import Opened


def main() -> None:
    """Take (sink, scope, batches, seconds) from the input and write until somebody puts an end to it."""
    sink, scope, batches, seconds = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    opened = Opened(sink, scope)
    for batch in batches:
        with suppress(OnceSinkError):
            opened.write(batch, seconds)
        sys.stdout.write(".")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
