"""A stand-alone Flink cluster of the pip package, on free ports; each of its processes is ended by its own id."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import Request, urlopen

import pyflink

from tests.servers import die_with_parent, free_port

HOME = Path(pyflink.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90.0


class FlinkCluster:
    """A running cluster. Configuration, logs, state and process ids are below `folder`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.rest_port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._configure(settings)

    def __enter__(self) -> FlinkCluster:
        self._start("jobmanager")
        until(lambda: self.get("/overview"), START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes.values()):
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            end(process)
        for pid in left_behind(self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_workers(self, *names: str) -> None:
        """Start TaskManagers of two slots each, and wait until they offer them."""
        for name in names:
            self._start(name)
        running = sum(process.poll() is None for name, process in self._processes.items() if name != "jobmanager")
        until(lambda: self.get("/overview")["taskmanagers"] >= running, START_SECONDS)

    def kill_worker(self, name: str) -> None:
        """Let a TaskManager die as it stands."""
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait()

    def kill_python(self) -> int:
        """Kill one worker process of Python's and leave the TaskManager alive; return how many were killed."""
        for pid in left_behind(self.folder):
            with suppress(OSError):
                if b"pyflink.fn_execution.beam.beam_boot" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    return 1
        return 0

    def flink(self, *arguments: str) -> str:
        """Run the `flink` program; return what it said."""
        command = [str(HOME / "bin" / "flink"), *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *arguments: str) -> str:
        """Submit a job with `flink run`; return its id."""
        python = ("-pyexec", sys.executable, "-pyclientexec", sys.executable)
        said = self.flink("run", "-d", *python, *arguments)
        found = re.search(r"JobID ([0-9a-f]{32})", said)
        assert found is not None, said
        return found[1]

    def stop_with_savepoint(self, job: str) -> str:
        """Stop a job; return where its savepoint is."""
        said = self.flink("stop", "-p", (self.folder / "savepoints").as_uri(), job)
        found = re.search(r"Path: (\S+)", said)
        assert found is not None, said
        return found[1]

    def get(self, path: str) -> Any:
        """Ask the REST interface."""
        with urlopen(f"http://127.0.0.1:{self.rest_port}{path}", timeout=10) as answer:
            return json.load(answer)

    def cancel(self, job: str) -> None:
        """Cancel a job and wait until it is over."""
        with urlopen(Request(f"http://127.0.0.1:{self.rest_port}/jobs/{job}", method="PATCH"), timeout=10):
            pass
        until(lambda: self.get(f"/jobs/{job}")["state"] == "CANCELED", 60)

    def counters(self, job: str, name: str) -> dict[str, int]:
        """Return the library's counters of a job by name, summed over the subtasks of the operator with this name."""
        found: dict[str, int] = {}
        for vertex in self.get(f"/jobs/{job}")["vertices"]:
            path = f"/jobs/{job}/vertices/{vertex['id']}/subtasks/metrics"
            ids = [each["id"] for each in self.get(path) if f"{name}.oncesink." in each["id"]]
            for metric in self.get(f"{path}?get={','.join(ids)}") if ids else []:
                short = metric["id"].rsplit(".", 1)[1]
                found[short] = found.get(short, 0) + int(metric["sum"])
        return found

    def logs(self) -> str:
        """Return the last lines of each log."""
        files = sorted((self.folder / "log").glob("*.log"))
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}" for path in files)

    def _configure(self, settings: dict[str, str]) -> None:
        for name in ("conf", "log", "pid", "tmp", "checkpoints"):
            (self.folder / name).mkdir()
        for path in (HOME / "conf").iterdir():
            shutil.copy(path, self.folder / "conf")
        chosen = {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.rpc.port": str(free_port()),
            "jobmanager.bind-host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1",
            "taskmanager.host": "127.0.0.1",
            "rest.address": "127.0.0.1",
            "rest.port": str(self.rest_port),
            "jobmanager.memory.process.size": "1000m",
            "taskmanager.memory.process.size": "1400m",
            "taskmanager.memory.managed.size": "256m",
            "taskmanager.numberOfTaskSlots": "2",
            "heartbeat.interval": "1000",
            "heartbeat.timeout": "8000",
            "execution.checkpointing.dir": (self.folder / "checkpoints").as_uri(),
            "io.tmp.dirs": str(self.folder / "tmp"),
            "metrics.fetcher.update-interval": "500",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "20",
            "restart-strategy.fixed-delay.delay": "500 ms",
            **settings,
        }
        # The package's own configuration opens modules of Java that Flink needs: that part is kept.
        path = self.folder / "conf" / "config.yaml"
        kept = _java_options(path)
        path.write_text("\n".join([*kept, *(f"{name}: {value}" for name, value in chosen.items())]) + "\n")
        self.environment = {
            **os.environ,
            "FLINK_CONF_DIR": str(self.folder / "conf"),
            "FLINK_LOG_DIR": str(self.folder / "log"),
            "FLINK_PID_DIR": str(self.folder / "pid"),
            "JVM_ARGS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def _start(self, name: str) -> None:
        kind = "jobmanager" if name == "jobmanager" else "taskmanager"
        command = [*die_with_parent(), str(HOME / "bin" / f"{kind}.sh"), "start-foreground"]
        with (self.folder / "log" / f"{name}.out").open("wb") as out:
            self._processes[name] = subprocess.Popen(command, env=self.environment, stdout=out, stderr=out)


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the sources; return where it is."""
    sources = folder / "sources"
    sources.mkdir()
    for name in ("package", "connectors", "transforms", "pipelines"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, sources)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(command, cwd=sources, check=True, timeout=120)
    (built,) = (sources / "dist").glob("oncesink-*.whl")
    return built


def end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was told to end, and make it end if it does not."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


def left_behind(folder: Path) -> list[int]:
    """Return processes whose environment names the folder: Python workers outlive a killed TaskManager."""
    mark = f"FLINK_CONF_DIR={folder / 'conf'}".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def _java_options(path: Path) -> list[str]:
    """Return the lines of the `env:` block."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = lines.index("env:")
    end = next(
        (n for n in range(begin + 1, len(lines)) if lines[n] and not lines[n].startswith((" ", "#"))), len(lines)
    )
    return lines[begin:end]


def until(condition: Callable[[], Any], seconds: float) -> Any:
    """Wait until a condition holds, and return what it found; errors of the connection count as not yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = condition()
        except OSError:
            found = None
        if found:
            return found
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.2)
