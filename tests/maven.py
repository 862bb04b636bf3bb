"""Java archives for tests, through the Maven client, kept in a cache folder of the user's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers import ServerMissing, program

SECONDS = 180.0
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>oncesink.tests</groupId><artifactId>archives</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"""

_missing: dict[Path, str] = {}
"""What could not be had, so that it is asked for once a run and not once a test."""


def archives(*coordinates: str) -> Path:
    """Return a folder with the archives of `group:name:version` and all that they need at run time.

    Raises `ServerMissing` where there is no Maven, or where its repository does not give them.
    """
    folder = cache() / "+".join(each.partition(":")[2].replace(":", "-") for each in coordinates)
    if folder.is_dir():
        return folder
    if folder in _missing:
        raise ServerMissing(_missing[folder])
    try:
        _fetch(coordinates, folder)
    except ServerMissing as error:
        _missing[folder] = str(error)
        raise
    return folder


def cache() -> Path:
    """Return where archives are kept between runs: below XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncesink-tests"


def _fetch(coordinates: tuple[str, ...], folder: Path) -> None:
    """Put them beside their place and move them there at once: a run that is cut off leaves no half folder."""
    maven = program("mvn", install="maven")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        pom, copied = Path(place, "pom.xml"), Path(place, "archives")
        dependencies = "".join(DEPENDENCY.format(*each.split(":")) for each in coordinates)
        pom.write_text(POM.format(dependencies=dependencies), encoding="utf-8")
        options = ["-q", "-B", "-ntp", f"-f={pom}", f"-DoutputDirectory={copied}", "-DincludeScope=runtime"]
        _run([maven, *options, COPY], ", ".join(coordinates))
        if not folder.is_dir():
            shutil.move(copied, folder)


def _run(command: list[str], wanted: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ServerMissing(f"Maven did not give {wanted} within {SECONDS:.0f} s") from None
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["nothing"]
        raise ServerMissing(f"Maven did not give {wanted}: {said[0]}")
