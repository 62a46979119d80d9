"""A system call of the working daemon fails once: it lives, says what failed, and leaks nothing."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.rounds import rounds
from tests.support.waiting import WAIT_S, eventually

# What each call is likely to fail with.
FAILURES = {
    "accept4": ("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "ENOSPC", "EPERM", "EPROTO", "ECONNABORTED"),
    "clone3": ("EAGAIN",),
    "dup": ("EMFILE",),
    "epoll_ctl": ("ENOSPC", "ENOMEM", "EPERM"),
    "fallocate": ("ENOSPC", "EIO"),
    "fchmod": ("EPERM", "EIO"),
    "flock": ("ENOLCK",),
    "fstat": ("ENOMEM", "EIO"),
    "fsync": ("EIO", "ENOSPC"),
    "ftruncate": ("ENOSPC", "EIO"),
    "getdents64": ("EIO",),
    "getsockopt": ("ENOMEM", "EMFILE"),
    "mkdir": ("EACCES", "ENOSPC"),
    "mmap": ("ENOMEM",),
    "newfstatat": ("ENOMEM", "EIO"),
    "openat": ("EMFILE", "ENFILE", "ENOMEM", "EIO", "EACCES"),
    "pidfd_open": ("EMFILE", "ENOMEM"),
    "pread64": ("EIO",),
    "pwrite64": ("ENOSPC", "EIO"),
    "recvfrom": ("ECONNRESET", "ENOMEM"),
    "rename": ("EIO", "EACCES"),
    "sendmsg": ("EPIPE", "ENOBUFS"),
    "sendto": ("EPIPE", "ENOBUFS"),
    "unlink": ("EIO", "EACCES"),
    "write": ("ENOSPC", "EIO"),
}
NUM = int(os.environ.get("SHMREPLAY_FAILING_CALLS", rounds(4, 14)))
CASES = [(call, error) for call, errors in FAILURES.items() for error in errors]
KNOWN = (sr.ShmReplayError, OSError)

pytestmark = [
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to trace the daemon"),
]


@contextlib.contextmanager
def failing(pid: int, call: str, error: str, when: int) -> Iterator[None]:
    """Makes one call of each of the process' threads fail: the one of that number from now on."""
    command = ["strace", "-f", "-o", os.devnull, "-e", f"trace={call}"]
    command += ["-e", f"inject={call}:error={error}:when={when}", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        assert "attached" in line, line
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=WAIT_S)


def work(daemon: DaemonProcess, told: list[BaseException]) -> None:
    """Asks for everything once. Notes the errors; those that are no fault of anybody's must be among KNOWN."""
    with sr.connect(daemon.socket, timeout_s=WAIT_S) as client:
        actions: list[Callable[[], object]] = [
            lambda: client.create_tables([table("new", 10)]),
            lambda: client.table("new").insert({"x": np.zeros(3, np.float32), "n": 1}),
            client.stats,
            client.checkpoint,
            lambda: client.pause("new", timeout_s=WAIT_S),
            lambda: client.drop_table("new", WAIT_S),
        ]
        for action in actions:
            try:
                action()
            except KNOWN as error:
                told.append(error)


def num_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.crash
def test_any_call_of_the_daemon_may_fail_once(
    make_daemon: StartDaemon, tmp_path: pathlib.Path, rng: np.random.Generator
) -> None:
    daemon = make_daemon().start("--checkpoint-dir", str(tmp_path))
    for _ in range(2):
        work(daemon, [])
    before = num_descriptors(daemon.pid)
    for index in rng.permutation(len(CASES))[:NUM]:
        call, error = CASES[index]
        what = f"{call} fails with {error}"
        told: list[BaseException] = []
        log_bytes = len(daemon.log())
        with failing(daemon.pid, call, error, int(rng.integers(1, 6))), contextlib.suppress(*KNOWN):
            work(daemon, told)
        assert not [text for text in map(str, told) if "please report" in text], (what, told)
        again: list[BaseException] = []
        with contextlib.suppress(sr.TableNotFound), daemon.connect() as client:
            client.drop_table("new")
        work(daemon, again)
        assert again == [], what
        assert [name for name in os.listdir(tmp_path) if name.endswith(".partial")] == [], what
        if call not in ("write", "recvfrom"):  # Python itself says that a line of the log, or a wake, was lost
            assert "Traceback" not in daemon.log()[log_bytes:], (what, daemon.log())
        eventually(lambda: num_descriptors(daemon.pid) <= before)
    assert daemon.stop() == 0
    assert daemon.left_behind() == []
