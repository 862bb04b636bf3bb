"""A mini cluster for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment


def let_java_find_packages() -> None:
    """Put on PYTHONPATH what tests have on `sys.path`: thread mode finds its packages by it alone.

    The Java process keeps the environment that it was started with, so this comes first.
    """
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    root = str(Path(__file__).resolve().parents[2])
    wanted = [entry for entry in (*known, root, *sys.path) if Path(entry).is_dir() and "lib-dynload" not in entry]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(wanted))


def mini_cluster(folder: Path, settings: Mapping[str, str] | None = None, *, parallelism: int = 1) -> Any:
    """Return an environment whose jobs run in a mini cluster, with checkpoints below `folder`."""
    let_java_find_packages()
    # Short jobs in a young process: the quick compiler and the simple collector are three times as fast here.
    os.environ.setdefault("JVM_ARGS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    configuration = Configuration()
    chosen = {
        "rest.port": "0",
        "python.executable": sys.executable,
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "restart-strategy.type": "none",
        **(settings or {}),
    }
    for name, value in chosen.items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(parallelism)
    return environment
