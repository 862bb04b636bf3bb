"""A program that is told to stop finishes; told again, it is gone."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import sys, threading
from oncesink.pipelines.stop_on_signals import stop_on_signals
stopped = threading.Event()
with stop_on_signals(stopped.set):
    print("ready", flush=True)
    assert stopped.wait(20)
    print("stopping", flush=True)
    if "lingers" in sys.argv:
        import ctypes
        while True:
            ctypes.CDLL(None).sleep(20)
print("finished", flush=True)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_first_signal_lets_it_finish() -> None:
    """It comes to its own end, with status 0."""
    with start() as process:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=20)
    assert said == "stopping\nfinished\n"
    assert process.returncode == 0


def test_the_second_signal_ends_it_at_once() -> None:
    """Also where it waits inside a driver that does not look at signals."""
    with start("lingers") as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=10)
    assert said == ""
    assert process.returncode == 128 + signal.SIGTERM
