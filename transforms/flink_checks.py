"""What would go wrong on the cluster, refused on the client in one line, while the job is built.

What only a worker could tell (a package missing on another machine) cannot be seen from here and is not guessed at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.datastream import CheckpointingMode, StreamExecutionEnvironment
from pyflink.util.java_utils import get_j_env_configuration

from ..connectors.contract import Sink, SinkKind
from ..connectors.errors import Misconfigured
from ..connectors.memory import MemoryLedger
from .gate import Gate

_AT_LEAST_ONCE = CheckpointingMode.AT_LEAST_ONCE
_FIND = "import importlib.util as u, sys; sys.exit(None in map(u.find_spec, sys.argv[1:]))"


class Settings:
    """The settings of a job, as the environment that it is built in has them."""

    def __init__(self, environment: StreamExecutionEnvironment) -> None:
        self.environment = environment
        held = get_j_env_configuration(environment._j_stream_execution_environment)  # noqa: SLF001 - there is no other way
        self._configuration = Configuration(j_configuration=held)

    def get(self, name: str, default: str = "") -> str:
        """Return a setting as text."""
        return str(self._configuration.get_string(name, default))

    @property
    def local(self) -> bool:
        """Tell whether the job will run in a mini cluster inside this program."""
        return self.get("execution.target", "local") == "local"

    @property
    def thread_mode(self) -> bool:
        return self.get("python.execution-mode", "process") == "thread"


def check_job(environment: StreamExecutionEnvironment, gate: Gate, sink: Sink | None, *, one_machine: bool) -> None:
    """Raise `Misconfigured` for a job that could not keep its promise, or whose workers would not start."""
    settings = Settings(environment)
    _check_ledger(settings, gate, one_machine=one_machine)
    _check_guarantee(settings, sink)
    check_python(settings)


def check_python(settings: Settings) -> None:
    """Raise `Misconfigured` where Python would not start on the workers, or would not find the package."""
    executable = settings.get("python.executable")
    if executable and not Path(executable).is_absolute() and not _in_archive(executable, settings):
        raise Misconfigured(
            f"python.executable={executable!r} must be an absolute path: workers start elsewhere and would not find it"
        )
    if settings.thread_mode:
        _check_thread_mode(settings, executable)
    _check_package(settings, executable)


def _check_ledger(settings: Settings, gate: Gate, *, one_machine: bool) -> None:
    if gate.ledger is None or gate.ledger.shared:
        return
    if isinstance(gate.ledger, MemoryLedger) and one_machine and not settings.local:
        raise Misconfigured(f"{gate.ledger!r} lives in one process, and a cluster has several: take SQLiteLedger")
    parallelism = settings.environment.get_parallelism()
    if not one_machine and (parallelism > 1 or not settings.local):
        where = f"with parallelism {parallelism}" if settings.local else "on a cluster"
        raise Misconfigured(
            f"{gate.ledger!r} serves one process, and this job runs {where}: take a shared ledger, or say"
            " one_machine=True if all workers run on one machine and its file lock will do"
        )


def _check_guarantee(settings: Settings, sink: Sink | None) -> None:
    if sink is None:
        checkpoints = settings.environment.get_checkpoint_config()
        # Flink says AT_LEAST_ONCE as well where there are no checkpoints at all; then a job that fails begins anew.
        if checkpoints.is_checkpointing_enabled() and checkpoints.get_checkpointing_mode() == _AT_LEAST_ONCE:
            raise Misconfigured(
                "drop_duplicates refuses AT_LEAST_ONCE checkpoints: what had passed would pass again;"
                " set EXACTLY_ONCE, or use write_once"
            )
    elif (
        settings.get("execution.batch.speculative.enabled", "false").lower() == "true"
        and sink.kind is not SinkKind.DROPS_BY_KEY
    ):
        raise Misconfigured(
            f"execution.batch.speculative.enabled runs two attempts at once, and {sink.target} does not drop a second"
            " write by key: switch it off"
        )


def _check_thread_mode(settings: Settings, executable: str) -> None:
    if not executable:
        raise Misconfigured("thread mode needs python.executable as an absolute path")
    if settings.local and sys.prefix != sys.base_prefix and not _on_pythonpath("pemja"):
        site = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
        raise Misconfigured(
            "thread mode in a virtual environment needs its packages on PYTHONPATH, or pemja is not found:"
            f" export PYTHONPATH={site}"
        )


def _check_package(settings: Settings, executable: str) -> None:
    """Ask the interpreter of the workers, where it is one of this machine and not the one that runs now."""
    shipped = settings.get("python.files") or settings.get("python.archives")
    if settings.local and not executable:
        _check_path("pyflink", *([] if shipped else ["oncesink"]))
    if shipped or not executable or executable == sys.executable or not os.access(executable, os.X_OK):
        return
    if _lacks(executable, "oncesink"):
        raise Misconfigured(
            f"{executable} does not have the package oncesink: install it there, or ship its wheel with -pyfs"
        )


def _lacks(executable: str, *packages: str) -> bool:
    """Tell whether an interpreter of the job's does not find one of these."""
    return subprocess.run([executable, "-c", _FIND, *packages], check=False, timeout=60).returncode != 0  # noqa: S603


def _check_path(*packages: str) -> None:
    """Ask the `python` that a mini cluster starts for its workers: without PyFlink they die, and start, for ever."""
    found = shutil.which("python")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return
    if found is None or _lacks(found, *packages):
        raise Misconfigured(
            f"workers would start {found or 'no python at all'}, which lacks {' or '.join(packages)}: activate the"
            f" environment, or say environment.set_python_executable({sys.executable!r}) before the sink"
        )


def _in_archive(executable: str, settings: Settings) -> bool:
    """Tell whether the path begins in an archive that is unpacked on the workers, `archive.zip[#name]`."""
    names = [Path(each.rpartition("#")[2]).name for each in settings.get("python.archives").split(",") if each]
    return Path(executable).parts[0] in names


def _on_pythonpath(package: str) -> bool:
    return any(Path(entry, package).is_dir() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry)
