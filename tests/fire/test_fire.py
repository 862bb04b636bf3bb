"""The program that runs the scenarios tells the truth about them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from oncesink.transforms.simulation.cells import Kind, Step

from tests.fire import __main__ as fire
from tests.fire.audit import audit
from tests.fire.hunt import Hunt, Prey
from tests.fire.scenario import Figures, Scenario, found
from tests.fire.scenarios.simulation import run_scenario
from tests.fire.scenarios.workers import log_process, logged


def scenario(figures: Figures | Exception) -> Scenario:
    def run(*, quick: bool, folder: Path) -> Figures:
        if isinstance(figures, Exception):
            raise figures
        return figures

    return Scenario("pretended", run, "beam")


def fire_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *all_of: Scenario) -> tuple[int, str]:
    monkeypatch.setattr(fire, "found", lambda _: list(all_of))
    code = fire.main([])
    return code, capsys.readouterr().out


def test_the_last_line_is_json_and_quick_runs_need_not_be_large(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads it finds every figure that the definitions name."""
    monkeypatch.setenv("QUICK", "1")
    code, out = fire_of(monkeypatch, capsys, scenario(Figures(records=7, cluster_kills=1)))
    line = json.loads(out.splitlines()[-1])
    assert (code, line["records"], line["cluster_kills"], line["lost"]) == (0, 7, 1, 0)
    assert set(line) == {*fire.COUNTED, "seconds"}


@pytest.mark.parametrize(
    "broken",
    [Figures(lost=1), Figures(twice=1), Figures(wrong=1), Figures(broken=["a sum"]), RuntimeError("no server")],
)
def test_a_broken_promise_makes_it_fail_and_keeps_the_folder(
    broken: Figures | Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scenario that could not run proves nothing either."""
    monkeypatch.setenv("QUICK", "1")
    code, out = fire_of(monkeypatch, capsys, scenario(broken))
    folder = Path(out.split("logs and keys are in ")[1].split()[0])
    assert code == 1
    assert folder.is_dir()
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()


def test_a_full_run_that_proves_too_little_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing lost among nothing is no proof."""
    monkeypatch.delenv("QUICK", raising=False)
    few = Figures(simulated_schedules=1_000_000, cells_min=9, cluster_kills=50, records=5_000_000, kills_external=10)
    assert fire_of(monkeypatch, capsys, scenario(few))[0] == 1
    few.kills_in_window = 2
    assert fire_of(monkeypatch, capsys, scenario(few))[0] == 0


def test_figures_add_up_but_the_rarest_cell_stays_the_rarest() -> None:
    """Scenarios that simulate nothing say nothing about cells."""
    total = Figures(records=1, cells_min=5) + Figures(records=2) + Figures(records=4, cells_min=3)
    assert (total.records, total.cells_min) == (7, 3)


def test_the_audit_counts_each_kind_of_fault() -> None:
    """From the source data alone."""
    counted = audit([("a", 1), ("a", 2), ("b", 1), ("c", 1)], [("a", 2), ("a", 1), ("b", 9), ("z", 1)])
    assert (counted.lost, counted.twice, counted.wrong) == (1, 1, 2)
    assert "lost: c" in counted.examples


def test_a_hunt_sees_what_a_writer_without_a_gate_does(tmp_path: Path) -> None:
    """The harness is worth something: the same kills, no gate, and records are there twice."""
    log = tmp_path / "log"
    with log_process(log) as port:
        prey = Prey(
            name="plain",
            settings={"kind": "plain", "log": port},
            lines=20_000,
            kills=2,
            batch=100,
            rows=lambda: [order for order in logged(log) if order[0] % 3 != 2],
        )
        figures = Hunt(prey, tmp_path, seed=1).run()
    assert figures.cluster_kills > 0
    assert figures.twice > 0
    assert figures.lost > 0, "the rows of every third order were taken out"
    assert not figures.held
    assert (tmp_path / "plain.keys").is_file()


def test_the_simulation_is_a_scenario(tmp_path: Path) -> None:
    """Each seed once, on the column whose turn it is."""
    report, figures = run_scenario(280, tmp_path)
    assert (figures.simulated_schedules, figures.distinct_traces, figures.held) == (280, len(report.traces), True)
    assert all(sum(report.cells[kind, step, 0] for step in Step) for kind in Kind)


def test_an_unknown_scenario_is_named() -> None:
    """A typo runs nothing instead of everything."""
    with pytest.raises(SystemExit, match="no such scenario: nonsense"):
        found(["nonsense"])


def test_every_scenario_is_found_without_its_environment() -> None:
    """Whoever looks for scenarios has Beam or Flink, not both."""
    environments = {each.name: each.environment for each in found([])}
    assert environments["simulation"] == "beam"
    assert environments["flink_kafka"] == environments["flink_filter"] == "flink"


POOL = """
import os, time
from tests.fire.scenarios.simulation import workers
with workers() as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 60).result()
"""


def alive(process: int) -> bool:
    """Tell whether there is such a process; one that is dead and only not yet waited for is not."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells processes by /proc")
def test_a_pool_ends_with_the_process_that_made_it() -> None:
    """Whoever kills a run that takes an hour gets the machine back."""
    with subprocess.Popen([sys.executable, "-c", POOL], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert alive(worker)
        parent.kill()
    deadline = time.monotonic() + 10
    while alive(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(worker)
