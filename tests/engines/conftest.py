"""What tests of the engines have in common."""

import os
import shutil
import warnings

import pytest

LEFT_OPEN = r"(unclosed file <_io\.Buffered|subprocess \d+ is still running)"
"""PyFlink starts a Java process and lets go of it: its pipes are never closed, and it ends when the tests do."""


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker by which tests of one engine are chosen, and let go what PyFlink leaves open."""
    config.addinivalue_line("markers", "flink: needs PyFlink and Java")
    config.addinivalue_line("filterwarnings", f"ignore:{LEFT_OPEN}:ResourceWarning")
    # Importing PyFlink 2.3 warns of parts of PyFlink 2.3.
    config.addinivalue_line("filterwarnings", r"ignore:\S+ has been deprecated since version:DeprecationWarning")
    # The second line rules while a test runs; pipes are found open after the last one.
    warnings.filterwarnings("ignore", LEFT_OPEN, ResourceWarning)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of Flink where Java is missing; where CI is set that is a failure."""
    if item.get_closest_marker("flink") is None or "JAVA_HOME" in os.environ or shutil.which("java") is not None:
        return
    missing = "Java is not installed: Flink needs 11, 17 or 21"
    if os.environ.get("CI", "").lower() in ("", "0", "false"):
        pytest.skip(missing)
    pytest.fail(missing)
