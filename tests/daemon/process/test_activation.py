"""A daemon to which somebody else's listening socket is passed, as systemd does for a socket unit."""

import concurrent.futures
import fcntl
import os
import pathlib
import socket
import stat
from collections.abc import Iterator

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.daemon.process.activation import take_listener
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.waiting import WAIT_S

# What systemd does between fork and exec: the socket becomes descriptor 3, and the variables name this very process.
ACTIVATE = """
import os, sys
os.dup2(int(os.environ.pop("SHMREPLAY_TEST_LISTENER")), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "shmreplay.daemon", *sys.argv[1:]])
"""
STEP = {"x": np.ones(3, np.float32), "n": 7}


class SocketUnit:
    """Stands for systemd with a socket unit: listens whether or not the daemon is there."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = str(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o660)
        self.listener.listen(64)

    def start(self, daemon: DaemonProcess, *flags: str) -> DaemonProcess:
        """Starts the daemon with the socket, and waits until it is ready."""
        fd = self.listener.fileno()
        ready, ready_for_child = os.pipe()
        env = {
            **os.environ,
            "LISTEN_FDS": "1",
            "LISTEN_FDNAMES": "shmreplayd.socket",
            "SHMREPLAY_TEST_LISTENER": str(fd),
        }
        # The child overwrites descriptor 3, so the pipe must have another number. The kernel picks a free one: other
        # threads open descriptors meanwhile, and would close a number that was chosen here.
        high = fcntl.fcntl(ready_for_child, fcntl.F_DUPFD, 10)
        os.close(ready_for_child)
        try:
            daemon._process = daemon.run(*flags, "--ready-fd", str(high), source=ACTIVATE, env=env, pass_fds=(fd, high))
            os.close(high)
            assert os.read(ready, 16) == b"ready\n", daemon.log()
        finally:
            os.close(ready)
        return daemon


@pytest.fixture
def unit(tmp_path: pathlib.Path) -> Iterator[SocketUnit]:
    unit = SocketUnit(tmp_path / "unit.sock")
    yield unit
    unit.listener.close()


def test_a_client_that_connects_before_the_daemon_starts_is_served_after_it_starts(
    make_daemon: StartDaemon, unit: SocketUnit
) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(sr.connect, unit.path, timeout_s=WAIT_S)
        daemon = unit.start(make_daemon())
        with call.result(WAIT_S) as client:
            client.create_tables([table()])
            assert client.table("replay").insert(STEP) > 0
    assert f"listens at {unit.path}" in daemon.log()
    assert not os.path.exists(daemon.socket)  # the one that it was told of, and has no use for


def test_its_socket_stays_as_it_was_when_the_daemon_ends(make_daemon: StartDaemon, unit: SocketUnit) -> None:
    before = os.stat(unit.path)
    daemon = unit.start(make_daemon(), "--group", str(os.getgid()))
    assert daemon.stop() == 0
    after = os.stat(unit.path)
    assert (after.st_ino, stat.S_IMODE(after.st_mode), after.st_gid) == (before.st_ino, 0o660, before.st_gid)


def test_requests_during_a_restart_wait_in_the_queue_and_nobody_is_refused(
    make_daemon: StartDaemon, unit: SocketUnit
) -> None:
    daemon = unit.start(make_daemon(), "--keep-tables")
    with sr.connect(unit.path, timeout_s=WAIT_S) as client:
        client.create_tables([table()])
        handle = client.table("replay")
        assert daemon.stop() == 0
        handle.insert(STEP, timeout_s=0)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            known = pool.submit(client.tables)  # reconnects
            fresh = pool.submit(sr.connect, unit.path, timeout_s=WAIT_S)
            unit.start(daemon)
            assert known.result(WAIT_S)["replay"]["size"] == 1
            with fresh.result(WAIT_S) as other:
                assert other.table("replay").sample(1, timeout_s=0).data["n"].tolist() == [7]


def pass_on(*sockets: socket.socket, **variables: str) -> dict[str, str]:
    return {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sockets)), "OTHER": "1", **variables}


def test_what_was_passed_is_taken_once_and_kept_from_child_processes(unit: SocketUnit) -> None:
    fd = os.dup(unit.listener.fileno())
    os.set_inheritable(fd, True)
    environment = pass_on(unit.listener)
    taken = take_listener(environment, fd)
    assert taken is not None
    with taken:
        assert (taken.fileno(), taken.getsockname(), os.get_inheritable(fd)) == (fd, unit.path, False)
        assert environment == {"OTHER": "1"}
        assert take_listener(environment, fd) is None


def test_what_was_passed_to_another_process_is_left_alone(unit: SocketUnit) -> None:
    assert take_listener(pass_on(unit.listener, LISTEN_PID=str(os.getppid())), unit.listener.fileno()) is None


def test_what_cannot_be_served_is_refused(unit: SocketUnit, tmp_path: pathlib.Path) -> None:
    with pytest.raises(sr.ShmReplayError, match=r"systemd passed 2 sockets \(a:b\); expected one, from a socket unit"):
        take_listener(pass_on(unit.listener, unit.listener, LISTEN_FDNAMES="a:b"), unit.listener.fileno())
    with (
        open(tmp_path / "file", "wb") as file,
        pytest.raises(sr.ShmReplayError, match="from systemd is not a socket; expec"),
    ):
        take_listener(pass_on(unit.listener), file.fileno())
    for family, kind, name, text in (
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), "is not a Unix stream socket"),
        (socket.AF_UNIX, socket.SOCK_DGRAM, str(tmp_path / "a"), "is not a Unix stream socket"),
        (socket.AF_UNIX, socket.SOCK_STREAM, str(tmp_path / "b"), "does not listen"),
    ):
        with socket.socket(family, kind) as other:
            other.bind(name)
            with pytest.raises(sr.ShmReplayError, match=text):
                take_listener(pass_on(other), other.fileno())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abstract:
        abstract.bind(f"\0shmreplay-test-{os.getpid()}")
        abstract.listen()
        with pytest.raises(sr.ShmReplayError, match=r"is bound to b'\\x00shmreplay-test-[0-9]+', which is not a path"):
            take_listener(pass_on(abstract), abstract.fileno())
