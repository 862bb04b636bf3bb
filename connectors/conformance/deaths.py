"""Kill a process while it writes, look at what is there, and repeat what it had begun."""

from __future__ import annotations

import os
import pickle
import random
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..contract import SinkKind, Write
from ..errors import OutcomeUnknown, Unavailable
from .report import Flaw
from .subject import Session, Subject

TRIAL = "a process killed while it wrote"
BATCHES = 20
ROWS = 10
START_SECONDS = 60.0
MOVE = "sink or records are of the program that was started: put them into a module that it imports"
LONGEST_SECONDS = 0.05
"""A kill comes at most so long after the first batch was through: the later ones are under way then."""

ATTEMPTS = 5


class Death(NamedTuple):
    """What kills showed. `seen`: whether what another process wrote can be read back here."""

    seen: bool
    parts: bool = False
    """Whether a batch was there in part."""


def killed(subject: Subject, kills: int) -> Death:
    """Kill some processes, each over batches of its own, and repeat these."""
    parts = False
    for _ in range(kills):
        batches = [subject.writes(ROWS) for _ in range(BATCHES)]
        through, trouble = _die(subject, batches)
        if trouble:
            subject.remarks.append(f"nothing was killed: another process cannot write with it: {trouble}")
            return Death(seen=False)
        time.sleep(min(subject.grace_seconds, 0.2))
        counts = [subject.counted(batch) for batch in batches]
        if not any(any(each) for each in counts[:through]):
            subject.remarks.append("nothing was killed: what another process writes cannot be read back in this one")
            return Death(seen=False)
        parts = parts or any(0 in each and any(each) for each in counts)
        _repeat(subject, batches)
    return Death(seen=True, parts=parts)


def _die(subject: Subject, batches: Sequence[Sequence[Write]]) -> tuple[int, str]:
    """Return how many batches were surely through when the process died, or why there was none to be killed."""
    try:
        task = pickle.dumps((subject.sink, subject.scope, batches, subject.timeout_seconds))
    except Exception as error:  # noqa: BLE001 - pickling runs the code of sink and records
        return 0, f"{type(error).__name__}: {error}"
    command = [sys.executable, "-m", f"{__package__}.child"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(  # noqa: S603 - this interpreter and a module of this package
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        # One that cannot take its task says why on its way out.
        with suppress(OSError):
            child.stdin.write(task)
            child.stdin.close()
        ready, _, _ = select.select([child.stdout], [], [], START_SECONDS)
        first = os.read(child.stdout.fileno(), 1) if ready else b""
        if first:
            time.sleep(random.uniform(0.0, LONGEST_SECONDS))  # noqa: S311 - no secret
        child.kill()
        through = len(first + child.stdout.read())
        last = child.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
    if first:
        return through, ""
    trouble = last[0] if last else "it wrote nothing within a minute"
    # Of the program that was started another process knows nothing: there `__main__` is another module.
    return through, f"{MOVE} ({trouble})" if b"__main__" in task else trouble


def _repeat(subject: Subject, batches: Sequence[Sequence[Write]]) -> None:
    """Do it all again, as an engine does; each effect has to be there, and once where the sink says so."""
    session = Session(subject)
    for batch in batches:
        _until_certain(session, batch)
    session.close()
    writes = [each for batch in batches for each in batch]
    once = subject.sink.kind is not SinkKind.EXTERNAL
    counts = subject.settled(writes, lambda found: min(found) > 0)
    if 0 in counts:
        what = f"{counts.count(0)} of {len(counts)} effects are not there after the repetition"
        subject.found(Flaw.LOSES, TRIAL, what)
    if once and max(counts) > 1:
        twice = sum(1 for each in counts if each > 1)
        subject.found(Flaw.DOUBLES, TRIAL, f"{twice} of {len(counts)} effects are there more than once")


def _until_certain(session: Session, batch: Sequence[Write]) -> None:
    """Write, and repeat it after a passing trouble: the dead process may still hold locks."""
    for attempt in range(ATTEMPTS):
        call = session.write(batch, trial="the repetition after a kill")
        if not isinstance(call.error, (Unavailable, OutcomeUnknown)):
            return
        time.sleep(0.1 * 2**attempt)
