"""Wheel and sdist, built from a copy of the sources and installed into fresh virtual environments."""

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.packaging.public_names import PUBLIC_NAMES
from tests.packaging.sources import FOLDERS, ROOT

SHIPPED = ("package", *FOLDERS, "setup.py", "pyproject.toml", "MANIFEST.in")
TEXTS = ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md")


def run(*command: str, folder: Path) -> str:
    """Run a program and return what it printed; a failure shows all of it."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist from the sources and the wheel from that sdist; return the folder that holds both."""
    sources = tmp_path_factory.mktemp("sources")
    for name in (*SHIPPED, *TEXTS):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, sources / name)
    # Nothing may be fetched: what builds the project is part of the environment that tests it.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", ".", folder=sources)
    return sources / "dist"


def only(folder: Path, pattern: str) -> Path:
    """Return the one file that matches."""
    (found,) = folder.glob(pattern)
    return found


def test_the_wheel_holds_oncesink_and_nothing_else(distributions: Path) -> None:
    """No `connectors`, `transforms` or `pipelines` lands beside `oncesink`, where it would meet a user's own."""
    with zipfile.ZipFile(only(distributions, "*.whl")) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"oncesink"}
    assert {f"oncesink/{folder}/py.typed" for folder in FOLDERS} | {"oncesink/py.typed"} <= set(names)
    assert "oncesink/transforms/membership/py.typed" in names
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_the_wheel_holds_every_module(distributions: Path) -> None:
    """A package that was left out of setup.py would be missed on workers only."""
    with zipfile.ZipFile(only(distributions, "*.whl")) as wheel:
        shipped = {name for name in wheel.namelist() if name.endswith(".py")}
    sources = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert shipped == {f"oncesink/{name}" for name in sources} | {"oncesink/__init__.py"}


def test_the_sdist_has_what_it_is_built_from(distributions: Path) -> None:
    """An sdist builds itself (the wheel came from it) and carries the texts that people look for."""
    with tarfile.open(only(distributions, "*.tar.gz")) as archive:
        names = {name.split("/", maxsplit=1)[-1] for name in archive.getnames()}
    assert {*TEXTS, "setup.py", "pyproject.toml", "package/py.typed"} <= names


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_a_fresh_environment_imports_every_public_name(distributions: Path, tmp_path: Path, pattern: str) -> None:
    """What was installed there answers, from there, and it is the only thing that was installed."""
    venv.create(tmp_path / "env", with_pip=False)
    site = only(tmp_path, "env/lib/python*/site-packages")
    # Dependencies come from the environment that runs the tests; the new one stands before it on the path.
    (site / "outer.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    before = set(site.iterdir())
    python = str(tmp_path / "env/bin/python")
    # Without `--ignore-installed` the outer environment's own oncesink would do, and nothing would be installed.
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *options]
    run(*pip, str(only(distributions, pattern)), folder=tmp_path)
    assert {path.name.split("-")[0] for path in set(site.iterdir()) - before} == {"oncesink"}
    printed = run(python, "-c", IMPORT_ALL, *PUBLIC_NAMES, folder=tmp_path)
    assert Path(printed.strip()).parent == site / "oncesink"


IMPORT_ALL = """
import importlib, sys
for package in sys.argv[1:]:
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
import oncesink
print(oncesink.__file__)
"""
