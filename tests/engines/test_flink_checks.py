"""Jobs that could not keep their promise, or whose workers would not start, are refused while they are built."""

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyflink", reason="PyFlink is not installed here: make setup puts it into .venv-flink")

from oncesink.connectors import MySQLLedger, RedisCache, Secret
from oncesink.connectors.errors import Misconfigured
from oncesink.connectors.memory import MemoryLedger
from oncesink.connectors.memory_sinks import MemorySink, MemoryTable
from oncesink.connectors.sqlite_ledger import SQLiteLedger
from oncesink.pipelines import flink_jsonl_to_mysql, flink_kafka_to_mysql
from oncesink.transforms import ByStamp, Fields, Gate, SourcePosition
from oncesink.transforms.flink import OnceSink, drop_duplicates, write_once
from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from tests.engines.flink_world import mini_cluster

pytestmark = pytest.mark.flink

LEDGER = MemoryLedger("checks")
TABLE = MemoryTable(LEDGER)
GATE = Gate(scope="orders", key=Fields("id"), occurrence=SourcePosition("file", "pos"), ledger=LEDGER)
EXTERNAL = replace(GATE, on_replay="write")


def stream(folder: Path, settings: dict[str, str] | None = None, *, parallelism: int = 1) -> Any:
    """Return a stream of a job that never runs."""
    return mini_cluster(folder, settings, parallelism=parallelism).from_collection(["{}"], Types.STRING())


def remote_stream() -> Any:
    """Return a stream of a job for a cluster, with one subtask, as `flink run` gives it."""
    gateway = get_gateway()
    factory = gateway.jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    jars = gateway.new_array(gateway.jvm.java.lang.String, 0)
    environment = StreamExecutionEnvironment(factory.createRemoteEnvironment("127.0.0.1", 1, jars))
    environment.set_parallelism(1)
    return environment.from_collection(["{}"], Types.STRING())


def refused(stream: Any, gate: Gate = GATE, sink: Any = TABLE, **options: Any) -> str:
    """Build the job; return why it is refused, in one line."""
    with pytest.raises(Misconfigured) as raised:
        drop_duplicates(stream, gate, **options) if sink is None else write_once(stream, gate, sink, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_filter_refuses_at_least_once(tmp_path: Path) -> None:
    """What had passed would pass again; with EXACTLY_ONCE, or without checkpoints, it is taken."""
    checkpoints = {"execution.checkpointing.interval": "1 s"}
    lax = stream(tmp_path, checkpoints | {"execution.checkpointing.mode": "AT_LEAST_ONCE"})
    assert "drop_duplicates refuses AT_LEAST_ONCE" in refused(lax, sink=None)
    write_once(lax, GATE, TABLE)
    drop_duplicates(stream(tmp_path, checkpoints), GATE)
    drop_duplicates(stream(tmp_path), GATE)


def test_a_filter_refuses_stamps_and_missing_occurrences(tmp_path: Path) -> None:
    """A crash before the first checkpoint draws new stamps."""
    built = stream(tmp_path)
    assert "refuses stamps" in refused(built, replace(GATE, occurrence=ByStamp()), None)
    assert "needs an occurrence" in refused(built, replace(GATE, occurrence=None), None)


def test_speculative_execution_wants_a_sink_that_drops_by_key(tmp_path: Path) -> None:
    """Two attempts run at once: an external sink would be called twice."""
    built = stream(tmp_path, {"execution.batch.speculative.enabled": "true"})
    assert "memory sink" in refused(built, EXTERNAL, MemorySink())
    write_once(built, GATE, MemorySink(drops_by_key=True))


def test_a_ledger_of_one_process_refuses_several(tmp_path: Path) -> None:
    """More than one subtask wants a shared ledger, unless the user says that one machine does it all."""
    assert "parallelism 2" in refused(stream(tmp_path, parallelism=2))
    write_once(stream(tmp_path, parallelism=2), GATE, TABLE, one_machine=True)


def test_a_cluster_refuses_a_ledger_of_one_process() -> None:
    """Its workers may be anywhere, also with one subtask; that they share a machine helps a file, but no memory."""
    files = SQLiteLedger("once.db", retention=timedelta(days=1))
    on_file = replace(GATE, ledger=files, on_replay="write")
    assert "runs on a cluster" in refused(remote_stream(), on_file, MemorySink())
    write_once(remote_stream(), on_file, MemorySink(), one_machine=True)
    assert "one_machine" in refused(remote_stream())
    assert "lives in one process" in refused(remote_stream(), one_machine=True)


def test_a_relative_python_is_refused(tmp_path: Path) -> None:
    """Workers start in another folder; a path into an archive that is sent along is fine."""
    assert "must be an absolute path" in refused(stream(tmp_path, {"python.executable": "venv/bin/python"}))
    archived = {"python.executable": "venv/bin/python", "python.archives": "/data/env.zip#venv"}
    write_once(stream(tmp_path, archived), GATE, TABLE)


def test_thread_mode_without_pemja_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a virtual environment Java would not find it, and the job would restart for ever."""
    built = stream(tmp_path, {"python.execution-mode": "thread"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if sys.prefix == sys.base_prefix:
        pytest.skip("only in a virtual environment")
    message = refused(built)
    assert "export PYTHONPATH=" in message
    monkeypatch.setenv("PYTHONPATH", message.rsplit("=", 1)[1])
    write_once(built, GATE, TABLE)


def test_workers_without_the_package_are_refused(tmp_path: Path) -> None:
    """Where the workers' interpreter is on this machine it is asked; a wheel that is sent along is enough."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert "does not have the package oncesink" in refused(stream(tmp_path, {"python.executable": str(python)}))
    python.write_text("#!/bin/sh\nexit 0\n")
    write_once(stream(tmp_path, {"python.executable": str(python)}), GATE, TABLE)


def test_a_python_on_the_path_without_pyflink_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mini cluster starts whatever `python` is: its workers would die and be started again, for ever."""
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    built = stream(tmp_path, {"python.executable": ""})
    assert "activate the environment" in refused(built, GATE)
    # With the package shipped it only has to know PyFlink.
    other.write_text('#!/bin/sh\ncase "$*" in *oncesink*) exit 1;; esac\n')
    assert "lacks pyflink or oncesink" in refused(built, GATE)
    write_once(stream(tmp_path, {"python.executable": "", "python.files": "file:///oncesink.whl"}), GATE, TABLE)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    write_once(built, GATE, TABLE)


def test_more_shards_than_key_groups_are_refused(tmp_path: Path) -> None:
    """Each shard has a key group of its own."""
    assert "shards=200" in refused(stream(tmp_path), replace(GATE, shards=200))
    write_once(stream(tmp_path), replace(GATE, shards=200), TABLE, max_parallelism=256)


def test_contradictory_settings_are_refused_while_the_job_is_built(tmp_path: Path) -> None:
    """Not on the workers."""
    assert "on_replay" in refused(stream(tmp_path), GATE, MemorySink())
    assert "lease" in refused(stream(tmp_path), replace(GATE, lease=timedelta(seconds=9)), TABLE)


def test_results_are_there_once_the_sink_is_behind_a_stream(tmp_path: Path) -> None:
    """Before that there is nothing to read."""
    sink = OnceSink(GATE, TABLE, told=True)
    with pytest.raises(RuntimeError, match=r"once stream\.sink_to"):
        _ = sink.results
    stream(tmp_path).sink_to(sink)
    assert sink.results.duplicates is not None


def test_a_sink_that_tells_nothing_says_where_the_streams_are(tmp_path: Path) -> None:
    """What was written is not taken through Java where nobody reads it."""
    sink = OnceSink(GATE, TABLE)
    stream(tmp_path).sink_to(sink)
    with pytest.raises(RuntimeError, match="told=True"):
        _ = sink.results


def test_an_output_that_nobody_can_reach_is_refused() -> None:
    """Records would vanish there in silence."""
    with pytest.raises(Misconfigured, match=r'rejected="output".*told=True'):
        OnceSink(replace(GATE, rejected="output"), TABLE)
    with pytest.raises(Misconfigured, match='parked="output"'):
        OnceSink(GATE, TABLE, parked="output")


def test_operators_have_uids_from_the_scope(tmp_path: Path) -> None:
    """A savepoint fits, whatever is built around the gate; two gates of one scope are refused by Flink."""
    built = stream(tmp_path)
    built.sink_to(OnceSink(GATE, TABLE))
    graph = built.get_execution_environment()._generate_stream_graph()
    uids = {node.getTransformationUID() for node in graph.getStreamNodes().toArray()}
    names = ("", "-keys", "-rejected", "-parked")
    assert {f"oncesink-write-orders{name}" for name in names} <= uids


@pytest.mark.parametrize("job", [flink_jsonl_to_mysql, flink_kafka_to_mysql], ids=lambda job: job.__name__)
def test_jobs_to_copy_read_passwords_on_the_workers(job: Any) -> None:
    """Their command line holds names of variables; `--rejected` opens a folder, and without it they stop."""
    words = (
        "--mysql mysql://w@db/shop --mysql-password-env DB --table t --key id --redis redis://c --redis-password-env R"
    )
    its_own = {
        flink_jsonl_to_mysql: "--input folder --position pos",
        flink_kafka_to_mysql: "--columns id --bootstrap b --topic t --group g",
    }
    options = job.parser().parse_args(f"{words} {its_own[job]}".split())
    built = flink_jsonl_to_mysql.gate(options, Fields("id"), SourcePosition("file", "pos"))
    assert isinstance(built.ledger, MySQLLedger)
    assert built.ledger.password == Secret.env("DB")
    assert built.cache == RedisCache("redis://c", ttl=flink_jsonl_to_mysql.CACHE_TTL, password=Secret.env("R"))
    assert flink_jsonl_to_mysql.rejected(options) is None
