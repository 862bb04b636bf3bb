"""Who may import whom, read from the source: nothing has to be installed for it."""

from pathlib import PurePath

import pytest

from tests.packaging.sources import FOLDERS, Import, imports, modules

DRIVERS = {
    "confluent_kafka",
    "kafka",
    "mmh3",
    "mysql",
    "numpy",
    "prometheus_client",
    "pymysql",
    "redis",
    "sqlite3",
    "stamina",
    "typer",
}
ENGINES = {"apache_beam": "beam", "pyflink": "flink"}


def offending(found: list[Import]) -> list[str]:
    """Return what is found as text, so that a failure shows file, line and target."""
    return [str(one) for one in found]


def test_the_library_imports_itself_with_dots_only() -> None:
    """A second copy without `oncesink.` in front of it fails at its first import instead of living a second life."""
    own = {"oncesink", *FOLDERS}
    assert not offending([one for one in imports("connectors", "transforms") if not one.relative and one.top in own])


def test_programs_and_tests_import_as_a_user_does() -> None:
    """Programs, tests and benchmarks name `oncesink...` in full, so that each can be copied out of here."""
    assert not offending([one for one in imports("pipelines") if one.relative])
    assert not offending([one for one in imports("pipelines", "tests", "benchmarks") if one.top in FOLDERS])


@pytest.mark.parametrize(
    ("folder", "above"), [("connectors", ("transforms", "pipelines")), ("transforms", ("pipelines",))]
)
def test_dependencies_run_one_way(folder: str, above: tuple[str, ...]) -> None:
    """Pipelines use transforms, transforms use connectors, and nothing looks back."""
    forbidden = tuple(f"oncesink.{name}." for name in above)
    assert not offending([one for one in imports(folder) if f"{one.target}.".startswith(forbidden)])


@pytest.mark.parametrize(("engine", "prefix"), ENGINES.items())
def test_an_engine_is_imported_by_its_binding_and_by_programs_only(engine: str, prefix: str) -> None:
    """The gate, the stores and the other engine's binding work without it."""
    strays = [one for one in imports("package", "connectors", "transforms") if one.top == engine]
    assert not offending([one for one in strays if not is_binding(one.file, prefix)])


def is_binding(file: str, prefix: str) -> bool:
    """Tell whether a file is `transforms/beam.py` or `transforms/beam_something.py`."""
    path = PurePath(file)
    return path.parent == PurePath("transforms") and path.stem.split("_")[0] == prefix


def test_no_module_is_named_like_a_driver() -> None:
    """A `redis.py` of ours would be imported instead of the driver where its folder is on the path."""
    assert not [path.name for path in modules("package", *FOLDERS) if path.stem in DRIVERS | set(ENGINES)]


def test_no_folder_shadows_the_installed_package() -> None:
    """From the root of the repository `import oncesink` finds what is installed."""
    root = modules("package")[0].parents[1]
    assert not (root / "oncesink").exists()
