"""A filter that does not fit is refused before it is allocated."""

import subprocess
import sys
from pathlib import Path

import pytest
from oncesink.transforms.membership.memory import available_bytes

MIB = 1 << 20

REFUSED = """
import resource
from oncesink.transforms.membership import Bloom, FilterTooLarge
small, large = Bloom(capacity=1000, error_rate=0.01), Bloom(capacity=2_000_000_000, error_rate=0.001)
snapshot = small.create().to_bytes()
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
small.load(snapshot)
try:
    large.create()
except FilterTooLarge as error:
    print(error)
"""


def test_a_filter_that_does_not_fit_is_refused() -> None:
    """In a process that may take 3 GiB, one of 3.7 GiB is refused with its size, and a small one is made."""
    shown = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=True).stdout
    assert "bloom(capacity=2000000000, error_rate=0.001) needs 3,833.4 MiB, and " in shown
    assert "MiB are available: lower its capacity" in shown


def machine(root: Path, *, free_mib: int, cgroup: str) -> Path:
    """Lay out what Linux shows of a machine's memory and of a process's control group."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {free_mib * 1024} kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    return root


def group(folder: Path, **files: str) -> None:
    """Write the files of one control group."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


def test_free_memory_of_the_machine_is_the_bound(tmp_path: Path) -> None:
    """Without control groups what counts is what the kernel says is available, file cache included."""
    assert available_bytes(machine(tmp_path, free_mib=700, cgroup="")) == 700 * MIB


def test_the_limit_of_the_own_group_counts(tmp_path: Path) -> None:
    """A container's limit, less what it uses, plus cached files that would be given back."""
    root = machine(tmp_path, free_mib=9000, cgroup="0::/job/worker\n")
    group(
        root / "sys/fs/cgroup/job/worker",
        memory_max=f"{512 * MIB}",
        memory_current=f"{300 * MIB}",
        memory_stat=f"anon 1\ninactive_file {100 * MIB}\n",
    )
    group(root / "sys/fs/cgroup/job", memory_max="max", memory_current="5")
    assert available_bytes(root) == 312 * MIB


def test_the_limit_of_an_outer_group_counts(tmp_path: Path) -> None:
    """A group without a limit of its own still lives inside others."""
    root = machine(tmp_path, free_mib=9000, cgroup="0::/pod/container\n")
    group(root / "sys/fs/cgroup/pod/container", memory_max="max", memory_current=f"{MIB}")
    group(root / "sys/fs/cgroup/pod", memory_max=f"{100 * MIB}", memory_current=f"{90 * MIB}")
    assert available_bytes(root) == 10 * MIB


def test_the_older_form_of_control_groups_counts(tmp_path: Path) -> None:
    """Version 1, seen from inside a container where the path in the list does not exist."""
    root = machine(tmp_path, free_mib=9000, cgroup="5:cpu,cpuacct:/x\n4:memory:/docker/abc\n")
    folder = root / "sys/fs/cgroup/memory"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{256 * MIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{56 * MIB}\n")
    assert available_bytes(root) == 200 * MIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    """No negative sizes."""
    root = machine(tmp_path, free_mib=9000, cgroup="0::/\n")
    group(root / "sys/fs/cgroup", memory_max=f"{MIB}", memory_current=f"{2 * MIB}")
    assert available_bytes(root) == 0


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="reads the memory of this Linux")
def test_this_machine_has_memory_left() -> None:
    """The real files are understood."""
    assert available_bytes() > 16 * MIB
