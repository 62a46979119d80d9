"""A real daemon for a test, and what tests of processes need: ends awaited by pidfd, scripts as processes."""

import contextlib
import os
import pathlib
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.protocol import PROTOCOL_VERSION, Deadline, Message, receive_message, send_message
from shmreplay.segments.segment import SegmentStore
from tests.support.waiting import WAIT_S


def wait_for_end(pid: int) -> None:
    """Returns once the process has ended; fails the test if it does not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with contextlib.closing(os.fdopen(pidfd, "rb", buffering=0, closefd=True)):
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(WAIT_S * 1000), f"process {pid} goes on"


def is_asleep(pid: int) -> bool:
    """Whether the process waits for something."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


def table(name: str = "replay", max_size: int = 1000, **options: Any) -> sr.Table:
    """A small table."""
    options = {"max_streams": 8, "max_sessions": 512, **options}
    return sr.Table(name, {"x": np.zeros(3, np.float32), "n": np.int64(0)}, max_size, **options)


class DaemonProcess:
    """A shmreplayd of a test's own instance."""

    def __init__(self, socket_path: str, instance: str, directory: str | None = None) -> None:
        self.socket = socket_path
        self.instance = instance
        self.store = SegmentStore(directory)
        self._directory = directory
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed in clean_up
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *flags: str, **popen: Any) -> "DaemonProcess":
        """Starts it and waits until clients can connect."""
        ready, ready_for_child = os.pipe()
        try:
            self._process = self.run(*flags, "--ready-fd", str(ready_for_child), pass_fds=(ready_for_child,), **popen)
            os.close(ready_for_child)
            assert os.read(ready, 16) == b"ready\n", self.log()
        finally:
            os.close(ready)
        return self

    def run(self, *flags: str, source: str | None = None, **popen: Any) -> "subprocess.Popen[bytes]":
        """Runs it without waiting; `source` is Python that does so in a way of its own."""
        command = [sys.executable, *(("-c", source) if source else ("-m", "shmreplay.daemon"))]
        command += ["--socket", self.socket, "--instance", self.instance]
        if self._directory is not None:
            command += ["--directory", self._directory]
        return subprocess.Popen([*command, *flags], stdout=self._log, stderr=self._log, cwd="/", **popen)

    def fail(self, *flags: str) -> str:
        """Runs it, expects that it refuses to start with code 1, and returns what it said."""
        before = len(self.log())
        assert self.run(*flags).wait(WAIT_S) == 1
        return self.log()[before:]

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        assert self._process is not None
        code = self._process.wait(WAIT_S)
        self._process = None
        return code

    def stop(self) -> int:
        """Ends it with SIGTERM and returns its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def log(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode()

    def connect(self) -> sr.Client:
        return sr.connect(self.socket, timeout_s=WAIT_S)

    def left_behind(self) -> list[str]:
        """What it has on disk and in shared memory."""
        files = [name for name in os.listdir(self.store.directory) if name.startswith(f"shmreplay.{self.instance}.")]
        return sorted([*files, *([self.socket] if os.path.exists(self.socket) else [])])

    def segments(self) -> dict[str, int]:
        """The inode of each of its segments, by file name."""
        names = [name for name in self.left_behind() if name.endswith((".index", ".data"))]
        return {name: os.stat(self.store.path(name)).st_ino for name in names}

    def clean_up(self) -> None:
        """After the test, whatever it left: so that the next one starts clean."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for name in self.left_behind():
            os.unlink(name if name == self.socket else self.store.path(name))
        self._log.close()


def new_daemon(path: pathlib.Path, directory: str | None = None) -> DaemonProcess:
    """One of a new instance, not started yet."""
    return DaemonProcess(str(path), f"test-{secrets.token_hex(6)}", directory)


StartDaemon = Callable[..., DaemonProcess]


@pytest.fixture
def make_daemon(tmp_path: pathlib.Path, nothing_left_by_this_test: None) -> Iterator[StartDaemon]:
    """Makes daemons of new instances, not started yet."""
    made: list[DaemonProcess] = []

    def make(directory: str | None = None) -> DaemonProcess:
        made.append(new_daemon(tmp_path / f"{len(made)}.sock", directory))
        return made[-1]

    yield make
    for daemon in made:
        daemon.clean_up()


@pytest.fixture
def daemon(make_daemon: StartDaemon) -> DaemonProcess:
    """A running daemon without tables."""
    return make_daemon().start()


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[sr.Client]:
    with daemon.connect() as client:
        yield client


class RawClient:
    """A client that sends what it likes."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(path)
        self.sock.settimeout(WAIT_S)

    def send(self, message: Message) -> None:
        send_message(self.sock, message, Deadline(WAIT_S))

    def ask(self, message: Message) -> Message:
        self.send(message)
        return self.answer()

    def answer(self) -> Message:
        return receive_message(self.sock, Deadline(WAIT_S))[0]

    def hello(self, **fields: Any) -> Message:
        return self.ask({"command": "hello", "version": PROTOCOL_VERSION, **fields})

    def is_dropped(self) -> bool:
        """Whether the daemon closes the connection, after what it has to say."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionResetError:
            return True
        return True

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.sock.close()


class Script:
    """Python source in a process of its own. It prints lines; `line` reads one, `say` answers it."""

    def __init__(self, source: str, *arguments: str, wrapper: tuple[str, ...] = (), **popen: Any) -> None:
        command = [*wrapper, sys.executable, "-c", source, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", **popen
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        line: str = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            pytest.fail(f"the script ended: {self.process.stderr.read()}")
        return line.strip()

    def say(self, text: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def finish(self) -> tuple[int, str, str]:
        """Waits for its end: exit code, the rest of its output, its errors."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err

    def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()


Run = Callable[..., Script]  # what `run_script` gives


@pytest.fixture
def run_script(nothing_left_by_this_test: None) -> Iterator[Callable[..., Script]]:
    """Starts scripts; those that still run at the end of the test are killed."""
    scripts: list[Script] = []

    def run(source: str, *arguments: str, **popen: Any) -> Script:
        scripts.append(Script(source, *arguments, **popen))
        return scripts[-1]

    yield run
    for script in scripts:
        script.close()
