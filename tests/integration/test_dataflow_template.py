"""The Flex template: its description, its launcher, and the sdist that its workers install."""

import json
import re
import shutil
import subprocess
import sys
import venv
from argparse import ArgumentParser
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from oncesink.connectors.mysql_ledger import MySQLLedger
from oncesink.connectors.secret import Secret

from tests.conftest import MySQLDatabase

pytest.importorskip("apache_beam")

from oncesink.pipelines.dataflow_template import LISTS, expanded, main
from oncesink.pipelines.jsonl_to_mysql import RETENTION, add_options

ROOT = Path(__file__).resolve().parents[2]
METADATA: dict[str, Any] = json.loads((ROOT / "pipelines" / "dataflow_template.json").read_text(encoding="utf-8"))
PARAMETERS: dict[str, dict[str, Any]] = {each["name"]: each for each in METADATA["parameters"]}
RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
PASSWORD_ENV = "ONCESINK_TEST_PASSWORD"


def options() -> dict[str, Any]:
    """Return the job's own options by name."""
    parser = ArgumentParser(add_help=False)
    add_options(parser)
    return {action.dest: action for action in parser._actions}


def test_the_description_and_the_options_agree_parameter_by_parameter() -> None:
    """Same names in the same order; what is required there is required here; lists are lists; defaults are told."""
    known = options()
    assert list(PARAMETERS) == list(known)
    for name, action in known.items():
        assert PARAMETERS[name]["isOptional"] == (not action.required), name
        assert (action.nargs == "+") == (name in LISTS), name
        if action.default is not None:
            assert f"Default: {action.default}." in PARAMETERS[name]["helpText"]


def test_parameters_are_described_as_dataflow_wants_them() -> None:
    """Each has a label and a help text; each pattern compiles."""
    for name, parameter in PARAMETERS.items():
        assert set(parameter) <= {"name", "label", "helpText", "isOptional", "regexes"}, name
        assert parameter["label"]
        assert parameter["helpText"].endswith(".")
        for pattern in parameter.get("regexes", ()):
            re.compile(pattern)


def test_lists_are_written_with_commas() -> None:
    """A template's parameter is one text; what was not filled in is left out; the rest goes through."""
    given = ["--key=order_id, version", "--redis=", "--runner=DataflowRunner", "--input=gs://a/b=c"]
    assert list(expanded(given)) == ["--key", "order_id", "version", "--runner=DataflowRunner", "--input=gs://a/b=c"]


def test_the_launcher_runs_with_exactly_these_parameters(
    tmp_path: Path, mysql_database: MySQLDatabase, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every parameter of the description is given, fits its patterns, and is taken."""
    monkeypatch.setenv(PASSWORD_ENV, mysql_database.password)
    MySQLLedger(mysql_database.url, retention=RETENTION, password=Secret.env(PASSWORD_ENV)).create_tables()
    (tmp_path / "orders-1.jsonl").write_text('{"order_id": "A", "amount": 1}\n{"order_id": "A", "amount": 1}\n')
    given = {
        "input": str(tmp_path / "orders-*.jsonl"),
        "source": "test/1",
        "mysql": mysql_database.url,
        "mysql_password_env": PASSWORD_ENV,
        "table": "orders",
        "columns": "order_id,amount",
        "key": "order_id",
        "scope": "orders",
        "redis": redis_url,
        "redis_password_env": "",
        "dead_letters": str(tmp_path / "dead.jsonl"),
        "capacity": "1000",
        "shards": "2",
    }
    assert set(given) == set(PARAMETERS)
    for name, value in given.items():
        assert not value or all(re.search(each, value) for each in PARAMETERS[name].get("regexes", ())), name
    with closing(mysql_database.server.connect(mysql_database.name)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, order_id VARCHAR(20), amount INT)")
        main([*(f"--{name}={value}" for name, value in given.items()), f"--runner={RUNNER}"])
        cursor.execute("SELECT order_id, amount FROM orders")
        assert list(cursor.fetchall()) == [("A", 1)]


@pytest.mark.slow
def test_the_sdist_of_the_setup_file_installs_and_imports(tmp_path: Path) -> None:
    """As Beam does for `--setup_file`: `setup.py sdist` from its own folder; a worker then installs what came out."""
    sources = tmp_path / "template"
    sources.mkdir()
    for name in ("package", "connectors", "transforms", "pipelines"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (
        *("setup.py", "pyproject.toml", "MANIFEST.in"),
        *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
    ):
        shutil.copy(ROOT / name, sources)
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path / "dist"), folder=sources)
    (sdist,) = (tmp_path / "dist").glob("oncesink-*.tar.gz")
    venv.create(tmp_path / "worker", with_pip=False)
    (site,) = tmp_path.glob("worker/lib/python*/site-packages")
    # The worker's container has the dependencies, and not the package.
    (site / "container.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    python = str(tmp_path / "worker/bin/python")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, "--no-index", "--ignore-installed", str(sdist), folder=tmp_path)
    printed = run(
        python, "-E", "-c", "import oncesink.pipelines.dataflow_template as it; print(it.__file__)", folder=tmp_path
    )
    assert Path(printed.strip()).parent == site / "oncesink" / "pipelines"


def run(*command: str, folder: Path) -> str:
    """Run a program and return what it printed; a failure shows all of it."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
