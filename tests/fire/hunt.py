"""Processes that write, and one that kills them and their servers while they do."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import servers
from tests.fire.audit import audit
from tests.fire.lines import source
from tests.fire.scenario import Figures
from tests.fire.writer import PASSWORD_ENV
from tests.servers import Server, die_with_parent

MOST_RESTARTS = 20
STUCK_SECONDS = 300.0
POLL_SECONDS = 0.004


@dataclass(kw_only=True)
class Prey:
    """A target, and what may be killed around it.

    `rows` reads key and content of all that is in the target. `owners` reads, from the ledger, whose rows are open.
    """

    name: str
    settings: dict[str, Any]
    lines: int
    kills: int
    rows: Callable[[], Iterable[tuple[int, int]]]
    workers: int = 1
    batch: int = 500
    owners: Callable[[], set[bytes]] | None = None
    servers: list[Server] = field(default_factory=list)
    waits: bool = False
    """Whether a replay may have to wait for a lease."""


class Hunt:
    """One target, written by processes that are killed again and again until all is done."""

    def __init__(self, prey: Prey, folder: Path, seed: int) -> None:
        self.prey = prey
        self.folder = folder
        self.figures = Figures(records=prey.lines)
        self._dice = random.Random(seed)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._restarts = 0
        self._seen: set[bytes] = set()

    def run(self) -> Figures:
        """Hunt, let them finish, and count."""
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for worker in range(self.prey.workers):
                self._start(worker)
            victims: list[Server | None] = [*[None] * self.prey.kills, *self.prey.servers]
            self._dice.shuffle(victims)
            for number, victim in enumerate(victims, 1):
                if not self._reaches(self.prey.lines * number // (len(victims) + 1)):
                    break
                self._kill(victim)
            self._reaches(None)
        finally:
            for each in self._running.values():
                each.kill()
                each.wait()
        self._count()
        return self.figures

    def _start(self, worker: int) -> None:
        prey = self.prey
        settings = {
            **prey.settings,
            "worker": worker,
            "workers": prey.workers,
            "lines": prey.lines,
            "rows": prey.batch,
            "note": str(self._note(worker)),
        }
        command = [*die_with_parent(), sys.executable, "-m", "tests.fire.writer", json.dumps(settings)]
        with (self.folder / f"{prey.name}-{worker}.log").open("ab") as log:
            self._running[worker] = subprocess.Popen(
                command, env={**os.environ, PASSWORD_ENV: servers.MYSQL_PASSWORD}, stdout=log, stderr=log
            )

    def _note(self, worker: int) -> Path:
        return self.folder / f"{self.prey.name}-{worker}.note"

    def _position(self) -> int:
        notes = [self._note(worker) for worker in range(self.prey.workers)]
        return sum(int(note.read_text()) if note.exists() else 0 for note in notes) // len(notes)

    def _reaches(self, position: int | None) -> bool:
        """Wait until they have come so far, to the end if None is given; False if they are through."""
        deadline, before = time.monotonic() + STUCK_SECONDS, -1
        while position is None or self._position() < position:
            if not self._look_after():
                return False
            now = self._position()
            if now != before:
                deadline, before = time.monotonic() + STUCK_SECONDS, now
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.prey.name} stands still at {now} of {self.prey.lines}; see {self.folder}")
            time.sleep(POLL_SECONDS if position is not None else 0.05)
        return True

    def _look_after(self) -> bool:
        """Start again who gave up while a server was away; False if all are through."""
        for worker, process in list(self._running.items()):
            code = process.poll()
            if code == 0:
                del self._running[worker]
            elif code is not None:
                self._restarts += 1
                if self._restarts > MOST_RESTARTS:
                    raise RuntimeError(f"{self.prey.name} ends with {code} again and again; see {self.folder}")
                self._start(worker)
        return bool(self._running)

    def _kill(self, victim: Server | None) -> None:
        time.sleep(self._dice.random() * 0.05)
        if victim is not None:
            victim.kill()
            self.figures.cluster_kills += 1
            time.sleep(self._dice.random() * 0.5)
            return victim.start()
        alive = [worker for worker, process in self._running.items() if process.poll() is None]
        if not alive:
            return None
        worker = self._dice.choice(alive)
        process = self._running[worker]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.figures.cluster_kills += 1
        self._look_into_the_ledger()
        return self._start(worker)

    def _look_into_the_ledger(self) -> None:
        """Read whose rows are open now.

        A worker that lives finishes its own before long: what stays is the dead one's.
        """
        owners = self.prey.owners
        if owners is None:
            return
        self.figures.kills_external += 1
        at_once = owners() - self._seen
        if at_once and self.prey.workers > 1:
            time.sleep(0.3)
            at_once &= owners()
        self._seen |= at_once
        self.figures.kills_in_window += bool(at_once)

    def _count(self) -> None:
        prey, figures = self.prey, self.figures
        counted = audit(source(prey.lines), prey.rows())
        figures.lost, figures.twice, figures.wrong = counted.lost, counted.twice, counted.wrong
        if counted.examples:
            (self.folder / f"{prey.name}.keys").write_text("\n".join(counted.examples))
            figures.broken.append(f"{prey.name}: {', '.join(counted.examples[:3])}; see {self.folder}")
        if figures.cluster_kills == 0:
            figures.broken.append(f"{prey.name}: nobody died with open work")
        waited = [each.read_text() for each in self.folder.glob(f"{prey.name}-*.waited")]
        if waited and not prey.waits:
            figures.broken.append(f"{prey.name}: {waited} records waited for a lease, although none has to")
        figures.broken += [f"{prey.name}: {each.read_text()}" for each in self.folder.glob(f"{prey.name}-*.sum")]
        figures.notes.append(f"{prey.name}: {figures.cluster_kills} kills, {self._restarts} restarts, waited {waited}")
