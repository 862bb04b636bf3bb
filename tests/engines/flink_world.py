"""Whether Flink can run here, and a mini cluster's environment for tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest


def require_flink() -> None:
    """Skip a module of tests where PyFlink or Java is missing; where CI is set, only a world without PyFlink is skipped."""
    if importlib.util.find_spec("pyflink") is None:
        pytest.skip("PyFlink is not installed here: .venv-flink has it", allow_module_level=True)
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        if os.environ.get("CI", "").lower() in ("", "0", "false"):
            pytest.skip("Java is not installed: Flink needs 11, 17 or 21", allow_module_level=True)
        pytest.fail("Java is not installed: Flink needs 11, 17 or 21")


def let_java_find_packages() -> None:
    """Put on PYTHONPATH what tests have on `sys.path`: Java hands it to workers, and thread mode finds pemja by it alone.

    The Java process keeps the environment that it was started with, so this comes first.
    """
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    root = str(Path(__file__).resolve().parents[2])
    wanted = [entry for entry in (*known, root, *sys.path) if Path(entry).is_dir() and "lib-dynload" not in entry]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(wanted))


def mini_cluster(folder: Path, *, parallelism: int = 1, **settings: str) -> Any:
    """Return an environment whose jobs run in this process's own mini cluster, with state and checkpoints below `folder`."""
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment

    let_java_find_packages()
    # Short jobs in a young process: the quick compiler and the simple collector are three times as fast here.
    os.environ.setdefault("JVM_ARGS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    configuration = Configuration()
    chosen = {
        "rest.port": "0",
        "python.executable": sys.executable,
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "restart-strategy.type": "none",
        **settings,
    }
    for name, value in chosen.items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(parallelism)
    return environment
