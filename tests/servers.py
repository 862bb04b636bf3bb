"""Start real Redis and MariaDB servers on free ports, and hurt them on purpose.

A server lives in a folder of its own. It dies with the process that started it, listens on 127.0.0.1 only and needs
no service of the machine. Benchmarks use the same servers.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pymysql

HOST = "127.0.0.1"
MYSQL_USER = "oncesink"
# Not a letter of it may show in a log, an error or a pickle; as part of a URL it would have to be escaped.
MYSQL_PASSWORD = "p@ss:/w0rd %41"
START_SECONDS = 60.0
STOP_SECONDS = 30.0

AnyServer = TypeVar("AnyServer", bound="Server")


class ServerMissing(RuntimeError):
    """No program of this kind is installed; the message says what to install."""


class ServerFailed(RuntimeError):
    """The program is there but did not start; the message ends with its log."""


class Server(ABC):
    """One server process: it can be killed, paused, and started again on the same data and port."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id; a server that does not run has none."""
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"{self.name} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Tell whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """Return the file that takes all that the server prints."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start on the data of the folder and return once the server answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*die_with_parent(), *self.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """End the process in order, or with SIGKILL if it does not come to an end."""
        if not self.running:
            return
        self.resume()
        os.kill(self.pid, signal.SIGTERM)
        try:
            self._wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process as a power cut would, but for what the operating system already holds."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait(STOP_SECONDS)

    def restart(self) -> None:
        """Stop, if it runs, and start again on the same data and port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the process where it stands: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        # The signal is on its way; a crowded machine lets the process answer meanwhile.
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Let a paused process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def revive(self) -> None:
        """Bring the server back, whatever the last test did to it."""
        if self.running:
            self.resume()
        else:
            self.start()

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that runs the server in the foreground."""

    @abstractmethod
    def answers(self, connection: socket.socket) -> bool:
        """Tell whether the server behind a new connection takes commands."""

    def _wait(self, seconds: float) -> None:
        if self._process is not None:
            self._process.wait(seconds)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if not self.running or time.monotonic() > deadline:
                self.stop()
                raise ServerFailed(f"{self.name} did not start:\n{self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)

    def _ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as connection:
                return self.answers(connection)
        except OSError:
            return False

    def __enter__(self: AnyServer) -> AnyServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} port={self.port} running={self.running}>"


class RedisServer(Server):
    """A Redis that keeps each answered write through `kill`, as long as the machine itself stays up."""

    name = "redis-server"

    def __init__(self, folder: Path, **options: str) -> None:
        """Take settings of `redis.conf` beside the defaults, with `_` for `-`."""
        super().__init__(folder)
        self._program = program("redis-server", install="redis-server")
        # `appendfsync no` writes before it answers, like `always`; only `everysec` may put the write itself off.
        self._options = {"appendonly": "yes", "appendfsync": "no", "save": "", **options}

    @property
    def url(self) -> str:
        """Return the URL of database 0."""
        return f"redis://{HOST}:{self.port}/0"

    def command(self) -> list[str]:
        """Return the command line, each setting as an option of it."""
        settings = {"bind": HOST, "port": str(self.port), "dir": str(self.folder), **self._options}
        options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]
        return [self._program, *options]

    def answers(self, connection: socket.socket) -> bool:
        """Tell whether PING is answered; while the data is loaded it is not."""
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")

    def reset(self) -> None:
        """Empty all databases and take back what tests set to make writes fail."""
        with socket.create_connection((HOST, self.port), timeout=START_SECONDS) as connection:
            for line in (
                b"REPLICAOF NO ONE",
                b"CONFIG SET maxmemory 0 maxmemory-policy noeviction min-replicas-to-write 0",
                b"FLUSHALL",
            ):
                connection.sendall(line + b"\r\n")
                reply = connection.recv(256)
                if not reply.startswith(b"+OK"):
                    raise ServerFailed(f"{line!r} was answered with {reply!r}")


MYSQLD = "ONCESINK_MYSQLD"
"""Environment variable with the path of another server's program, such as that of a MySQL 8."""


class MySQLServer(Server):
    """A MariaDB, or what `MYSQLD` names, with a small buffer pool and its own defaults for durable commits."""

    name = "mariadbd"

    def __init__(self, folder: Path, **options: str) -> None:
        """Take server variables beside the defaults, with `_` for `-`."""
        super().__init__(folder)
        self._chosen = os.environ.get(MYSQLD)
        self._program = self._chosen or program("mariadbd", "mysqld", install="mariadb-server")
        # MySQL would listen on one more port, the same for all of them, and offer TLS to tests that cut connections.
        own = {"mysqlx": "OFF", "tls_version": ""} if self._chosen else {}
        self._options = {"innodb_buffer_pool_size": "128M", "skip_name_resolve": "ON", **own, **options}
        self._numbers = count(1)

    def start(self) -> None:
        """Make the system tables on the first start, then run on them."""
        if not self._data.exists():
            self._install()
        super().start()

    def url(self, database: str) -> str:
        """Return the URL of a database, without the password."""
        return f"mysql://{MYSQL_USER}@{HOST}:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database and return its name, which no other test of this server gets."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return name

    def connect(self, database: str | None = None) -> "pymysql.Connection[pymysql.cursors.Cursor]":
        """Open a plain connection that commits each statement, for what tests ask or set behind the library's back."""
        return pymysql.connect(
            host=HOST,
            port=self.port,
            user=MYSQL_USER,
            password=MYSQL_PASSWORD,
            database=database,
            autocommit=True,
            connect_timeout=10,
            read_timeout=60,
            write_timeout=60,
        )

    def command(self) -> list[str]:
        """Return the command line; options of the machine's own configuration files are not read."""
        settings = {
            "datadir": str(self._data),
            "socket": str(self._socket),
            "tmpdir": str(self._temporary),
            "pid_file": str(self.folder / "server.pid"),
            "bind_address": HOST,
            "port": str(self.port),
            "init_file": str(self._init_file),
            **self._options,
        }
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        return [self._program, "--no-defaults", *as_user(), *options]

    def answers(self, connection: socket.socket) -> bool:
        """Tell whether the greeting comes: a header of 4 bytes, then the number 10 of the protocol."""
        return connection.recv(5)[4:] == b"\x0a"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _temporary(self) -> Path:
        # A server that starts deletes what it takes for its own leftovers: two must not share a folder.
        return self.folder / "tmp"

    @property
    def _socket(self) -> Path:
        return self.folder / "server.sock"

    @property
    def _init_file(self) -> Path:
        return self.folder / "init.sql"

    def _install(self) -> None:
        # Of MySQL's ways to log in this one is a question and an answer, which proxies of tests can follow.
        plugin = "WITH mysql_native_password " if self._chosen else ""
        self._init_file.write_text(
            f"CREATE USER IF NOT EXISTS '{MYSQL_USER}'@'%' IDENTIFIED {plugin}BY '{MYSQL_PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{MYSQL_USER}'@'%' WITH GRANT OPTION;\n"
        )
        if self._chosen:
            installer, how = self._chosen, "--initialize-insecure"
        else:
            installer, how = program("mariadb-install-db", install="mariadb-server"), "--skip-test-db"
        command = [installer, "--no-defaults", *as_user(), f"--datadir={self._data}", how]
        self._temporary.mkdir(exist_ok=True)
        command.append(f"--tmpdir={self._temporary}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        if done.returncode != 0:
            shutil.rmtree(self._data, ignore_errors=True)
            raise ServerFailed(f"{installer} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def folder_of(kind: str) -> Iterator[Path]:
    """Make a folder for a server and remove it afterwards; its path is short, since sockets allow 107 bytes."""
    with tempfile.TemporaryDirectory(prefix=f"oncesink-{kind}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def redis_server(**options: str) -> Iterator[RedisServer]:
    """Run a Redis of one's own until the block ends."""
    with folder_of("redis") as folder, RedisServer(folder, **options) as server:
        yield server


@contextmanager
def mysql_server(**options: str) -> Iterator[MySQLServer]:
    """Run a MariaDB of one's own until the block ends."""
    with folder_of("mysql") as folder, MySQLServer(folder, **options) as server:
        yield server


def self_signed(folder: Path) -> Path:
    """Make a certificate for 127.0.0.1 that nobody signed but itself; its key, `key.pem`, stands beside it."""
    path = folder / "cert.pem"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(path), "-addext", f"subjectAltName=IP:{HOST}"]
    subprocess.run(["openssl", "req", *options, *files], check=True, capture_output=True)
    return path


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def program(*names: str, install: str) -> str:
    """Find the first of some programs, also where only root's PATH would show it."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    for name in names:
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise ServerMissing(f"{' or '.join(names)} is not installed: install the package {install}")


def as_user() -> list[str]:
    """Return the option without which MariaDB refuses to run as root."""
    return ["--user=root"] if os.geteuid() == 0 else []


def die_with_parent() -> list[str]:
    """Return a prefix that ends the server when this process is killed; elsewhere than on Linux there is none."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL"]
