"""What a demo is asked for, and where passwords go.

They go into this process's environment, which the pipeline's process inherits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec

from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.secret import take_password
from oncesink.pipelines.stores import secret_of


class Engine(str, Enum):
    """What runs the pipeline: each is a module `demo_<engine>` with a function `run(job)`."""

    BEAM = "beam"
    FLINK = "flink"

    @property
    def goes_on_from(self) -> str:
        """Return where the run after a killed one begins."""
        return "the beginning" if self is Engine.BEAM else "its last checkpoint"

    def require(self) -> None:
        """Raise `Misconfigured` where it cannot run here."""
        if find_spec(f"oncesink.pipelines.demo_{self.value}") is None:
            raise Misconfigured(f"this version has no demo on {self.value}: use --engine beam")
        if find_spec({"beam": "apache_beam", "flink": "pyflink"}[self.value]) is None:
            raise Misconfigured(f"the demo on {self.value} needs it: pip install 'oncesink[demo,{self.value}]'")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A store's URL without its password, and the environment variable that holds it."""

    url: str
    password_env: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Where the demo writes, and how much. Without a ledger it makes a file that goes again."""

    engine: Engine = Engine.BEAM
    ledger: str | None = None
    password_env: str | None = None
    redis: str | None = None
    redis_password_env: str | None = None
    limit: int | None = None

    def ledger_place(self) -> Place | None:
        """Return where ledger and tables shall be. Raises `Misconfigured` where the demo cannot make tables."""
        if self.ledger is None:
            if self.password_env is not None:
                raise Misconfigured(f"--password-env {self.password_env} does nothing without --ledger")
            return None
        if not self.ledger.startswith(("sqlite:///", "mysql://")):
            wanted = "sqlite:///path or mysql://user@host:3306/database"
            raise Misconfigured(f"the demo writes rows and ledger together, so --ledger is {wanted}, nothing else")
        return place(self.ledger, self.password_env, "ONCESINK_DEMO_LEDGER_PASSWORD")

    def redis_place(self) -> Place | None:
        """Return where the cache shall be."""
        if self.redis is None:
            return None
        return place(self.redis, self.redis_password_env, "ONCESINK_DEMO_REDIS_PASSWORD")


def place(url: str, password_env: str | None, own_env: str) -> Place:
    """Take the password off a URL, into an environment variable of this process: pickles may carry its name only."""
    clean, secret = take_password(url, secret_of(password_env))
    if secret is None:
        return Place(url=clean)
    password = secret.reveal()
    if password_env is None:
        os.environ[own_env] = password
    return Place(url=clean, password_env=password_env or own_env)
