"""Other processes at the same memory: each page-locks it for itself, and one that is killed leaves nothing locked."""

import contextlib
import mmap
import subprocess
import sys
from collections.abc import Iterator

from bench.gpu.finding import Finding
from bench.gpu.shared import Shared, mapped, shared
from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.driver import Driver
from shmreplay.clients.cuda.page_lock import PageLock
from shmreplay.host_memory import show_bytes


def checks(device: Device, num_bytes: int) -> Iterator[Finding]:
    """`num_bytes`: of the memory that both have."""
    with shared(num_bytes) as memory:
        yield both(device, memory)
        yield after_a_kill(device, memory)


def both(device: Device, memory: Shared) -> Finding:
    check = f"two processes page-lock the same {show_bytes(memory.num_bytes)}"
    with learner(memory) as (_, theirs):
        ours = locked(device, memory)
    return Finding(check, f"the other one {theirs}, this one {ours}", "both do", theirs == ours == "registered")


def after_a_kill(device: Device, memory: Shared) -> Finding:
    check = "kill -9 one that has it page-locked, and lock it here"
    with learner(memory) as (process, theirs):
        process.kill()
        process.wait()
    ours = locked(device, memory)
    return Finding(check, f"the dead one {theirs}, this one {ours}", "it is had again", theirs == ours == "registered")


def locked(device: Device, memory: Shared) -> str:
    """What a lock came to; it is undone by then."""
    with PageLock(device, memory.address, memory.num_bytes, mmap.PAGESIZE, "bench") as lock:
        lock.wait()
        return f"{lock.state} {lock.reason}".strip()


@contextlib.contextmanager
def learner(memory: Shared) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A process that has the memory page-locked while this runs, and what its lock came to."""
    command = [sys.executable, "-m", __spec__.name, str(memory.fd), str(memory.num_bytes)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=[memory.fd])
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip() or "ended"
    finally:
        process.communicate()


def main(fd: int, num_bytes: int) -> None:
    """What that process does: until its input ends."""
    with (
        mapped(fd, num_bytes) as address,
        Driver.open().device() as device,
        PageLock(device, address, num_bytes, mmap.PAGESIZE, "bench") as lock,
    ):
        lock.wait()
        print(f"{lock.state} {lock.reason}".strip(), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
