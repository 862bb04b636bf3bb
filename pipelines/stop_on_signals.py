"""Let a program finish what it has in hand when it is told to stop, and end at once when it is told so again."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop`, in another thread, at the first SIGTERM or SIGINT; at the second one the process is gone.

    Its status is then 128 and the signal's number. From the main thread only.
    """
    # Python's own handlers run between two of the main thread's instructions. That thread may be inside a driver for
    # as long as a server is away, so the signals are read from the descriptor to which C writes them.
    listener, written = socket.socketpair()
    written.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in STOP}
    descriptor = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_listen, args=(listener, stop), name="oncesink-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        written.close()
        thread.join()
        listener.close()


def _listen(listener: socket.socket, stop: Callable[[], None]) -> None:
    asked = False
    while received := listener.recv(1):
        if received[0] not in STOP:
            continue
        if asked:
            os._exit(128 + received[0])
        asked = True
        stop()
