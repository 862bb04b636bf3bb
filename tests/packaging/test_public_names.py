"""The names that users may rely on, and what importing them costs. ruff keeps each `__all__` in order."""

import importlib
import subprocess
import sys

import pytest

from tests.packaging.public_names import PUBLIC_NAMES

NOT_CORE = [
    "anyio",
    "apache_beam",
    "confluent_kafka",
    "greenlet",
    "hiredis",
    "httpcore",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyflink",
    "pymysql",
    "redis",
    "rich",
    "typer",
]


@pytest.mark.parametrize(("package", "names"), PUBLIC_NAMES.items())
def test_the_public_names_are_the_frozen_ones(package: str, names: list[str]) -> None:
    """Each package exports what is written down, each name once, and has all of it."""
    module = importlib.import_module(package)
    exported = list(getattr(module, "__all__", []))
    assert sorted(exported) == sorted(names)
    assert len(exported) == len(set(exported))
    assert not [name for name in exported if not hasattr(module, name)]


def run(code: str) -> str:
    """Run code in a new interpreter and return what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_library_loads_no_engine_and_no_driver() -> None:
    """A worker, a linter or a `--help` pays for nothing that it does not use."""
    loaded = run("import sys, oncesink.connectors, oncesink.transforms\nprint(*sys.modules)")
    assert not set(loaded.split()) & set(NOT_CORE)


@pytest.mark.parametrize("package", ["oncesink", "oncesink.connectors", "oncesink.transforms"])
def test_the_core_imports_where_no_extra_is_installed(package: str) -> None:
    """With every optional distribution made unimportable each public name is still there."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({NOT_CORE!r}))"
    names = "print(*[name for name in module.__all__ if getattr(module, name) is not None])"
    assert sorted(run(f"{blocked}\nimport {package} as module\n{names}").split()) == sorted(PUBLIC_NAMES[package])
