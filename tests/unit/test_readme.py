"""What README and docs show runs, and what they name is there."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
RUN = [README, ROOT / "docs" / "guide.md"]
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

MYSQL_URL = "mysql://oncesink@db:3306/shop"
KAFKA = "kafka:9092"
REDIS_URL = "redis://cache:6379/0"
PASSWORD_ENV = "SHOP_PASSWORD"
SECONDS = 240

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::([\w:]+))?")
TARGET = re.compile(r"\bmake ([a-z]+)")


class Block(NamedTuple):
    """A piece of Python on a page, what it prints where that is shown, and what it needs."""

    page: str
    line: int
    code: str
    prints: str | None

    @property
    def needs(self) -> set[str]:
        """Return the words of its `# needs:` line."""
        found = re.match(r"# needs: (.+)", self.code)
        return set(found[1].split(", ")) if found else set()


def blocks(page: Path) -> list[Block]:
    """Return the Python blocks; a `text` block right behind one is what that prints."""
    text = page.read_text(encoding="utf-8")
    fenced = [(match[1], match[2], text[: match.start()].count("\n") + 1) for match in FENCED.finditer(text)]
    found = []
    for (language, code, line), (after, prints, _) in zip(fenced, [*fenced[1:], ("", "", 0)], strict=True):
        if language == "python":
            found.append(Block(page.stem, line, code, prints if after == "text" else None))
    return found


def statements(text: str) -> Iterator[str]:
    """Yield what the README's SQL blocks hold."""
    return (match[2] for match in FENCED.finditer(text) if match[1] == "sql")


SHOWN = [block for page in RUN for block in blocks(page)]


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: f"{block.page}-line{block.line}")
def test_what_the_pages_show_runs(block: Block, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each block is a program of its own, run in an empty folder, and prints what is shown."""
    code, environment = prepared(block, request)
    program = tmp_path / "shown.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    if block.prints is not None:
        assert done.stdout == block.prints


def test_programs_that_need_no_server_run_again_and_beside_each_other(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Who tries them in one folder, and each of them twice, meets no file of another one."""
    ours = [each for each in SHOWN if not each.needs]
    assert len(ours) >= 4
    for block in [*ours, *ours]:
        code, environment = prepared(block, request)
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block.page}, line {block.line}: {done.stderr[-4000:]}"
        if "shop.db" in block.code:
            assert done.stdout == block.prints


def prepared(block: Block, request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """Put the addresses of the test servers into a block, make its tables, or skip it where an engine is missing."""
    code, environment = block.code, {**os.environ, "PYTHONWARNINGS": "ignore"}
    # Flink starts its Python by name.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    for engine, module in (("beam", "apache_beam"), ("flink", "pyflink")):
        if engine in block.needs and importlib.util.find_spec(module) is None:
            pytest.skip(f"{engine} is not installed here")
    if "flink" in block.needs and shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed: Flink needs 11, 17 or 21")
    if "kafka" in block.needs:
        code = code.replace(KAFKA, request.getfixturevalue("mock_kafka"))
    if "redis" in block.needs:
        code = code.replace(REDIS_URL, request.getfixturevalue("redis_url"))
    if "mysql" in block.needs:
        database = request.getfixturevalue("mysql_database")
        with closing(database.server.connect(database.name)) as connection, connection.cursor() as cursor:
            for statement in statements(README.read_text(encoding="utf-8")):
                cursor.execute(statement)
        code = code.replace(MYSQL_URL, database.url)
        environment[PASSWORD_ENV] = database.password
    return code, environment


def test_every_block_says_what_it_needs() -> None:
    """No address of a server stands in a block that does not ask for one."""
    for block in SHOWN:
        for need, sign in (
            ("kafka", KAFKA),
            ("mysql", "mysql://"),
            ("redis", "redis://"),
            ("beam", "apache_beam"),
            ("flink", "pyflink"),
        ):
            assert (sign in block.code) == (need in block.needs), f"{block.page}, line {block.line}: {need}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Files exist, and so do the headings that links point at."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), f"{target}: there is no such file"
        if heading:
            assert heading in headings(file), f"{target}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_is_named_exists(page: Path) -> None:
    """A promise refers to the test that holds it."""
    for path, name in TEST.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / path).is_file(), f"{path}: there is no such file"
        assert not name or name in definitions(ROOT / path), f"{path} has no {name}"


def test_the_crash_table_names_tests() -> None:
    """The page of guarantees refers to a test in every part that promises something."""
    assert len(TEST.findall((ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8"))) >= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    """Commands can be typed as they stand."""
    there = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    code = "\n".join(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")))
    fenced = "\n".join(match[2] for match in FENCED.finditer(page.read_text(encoding="utf-8")) if match[1] == "sh")
    assert set(TARGET.findall(f"{code}\n{fenced}")) <= there


@cache
def definitions(file: Path) -> frozenset[str]:
    """Return functions and classes, and methods as pytest names them; those of a contract suite alone."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            prefix = "" if file.stem.endswith("_contract") else f"{node.name}::"
            names.update(prefix + each.name for each in node.body if isinstance(each, ast.FunctionDef))
    return frozenset(names)


@cache
def headings(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as they are made of their text."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)
