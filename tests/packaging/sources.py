"""The source files as data: where they are, and what each of them imports."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("connectors", "transforms", "pipelines")


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """One import statement: where it stands, what it names in full, and whether it is written with dots."""

    file: str
    line: int
    target: str
    relative: bool

    @property
    def top(self) -> str:
        """Return the top-level package that is imported."""
        return self.target.split(".", maxsplit=1)[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def modules(*folders: str) -> list[Path]:
    """Return the Python files below some folders of the repository."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(*folders: str) -> Iterator[Import]:
    """Yield each import below some folders, those inside functions included; relative ones are resolved."""
    for path in modules(*folders):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield from _imports_of(node, path)


def _imports_of(node: ast.AST, path: Path) -> Iterator[Import]:
    file = str(path.relative_to(ROOT))
    if isinstance(node, ast.Import):
        for name in node.names:
            yield Import(file=file, line=node.lineno, target=name.name, relative=False)
    elif isinstance(node, ast.ImportFrom):
        for target in _targets(node, path):
            yield Import(file=file, line=node.lineno, target=target, relative=bool(node.level))


def _targets(node: ast.ImportFrom, path: Path) -> list[str]:
    if not node.level:
        return [node.module or ""]
    parent = ("oncesink", *path.relative_to(ROOT).parts)[: -node.level]
    # `from .. import connectors` names modules where `from ..connectors import X` names one.
    below = [node.module] if node.module else [name.name for name in node.names]
    return [".".join([*parent, name]) for name in below]
