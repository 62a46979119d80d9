"""Other processes with the same memory and GPU: each has its own page lock, a dead one leaves none, all can call."""

import contextlib
import mmap
import select
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.gpu.finding import Finding, skipped
from bench.gpu.shared import NoMemory, Shared, mapped, shared
from shmreplay.base.host_memory import show_bytes
from shmreplay.clients.cuda.device import Device, open_device
from shmreplay.clients.cuda.page_lock import PageLock


def checks(device: Device, num_bytes: int, large_bytes: int) -> Iterator[Finding]:
    """Runs the checks.

    `num_bytes` is the size of the memory that both processes map, `large_bytes` the size of the memory that one
    page-locks while the other one calls the driver.
    """
    with shared(num_bytes) as memory:
        yield both(device, memory)
        yield after_a_kill(device, memory)
    yield calling(device, large_bytes)


def both(device: Device, memory: Shared) -> Finding:
    check = f"two processes page-lock the same {show_bytes(memory.num_bytes)}"
    with neighbour("lock", memory) as (_, theirs):
        ours = locked(device, memory)
    return Finding(check, f"the other one {theirs}, this one {ours}", "both do", theirs == ours == "registered")


def after_a_kill(device: Device, memory: Shared) -> Finding:
    check = "kill -9 one that has it page-locked, and lock it here"
    with neighbour("lock", memory) as (process, theirs):
        process.kill()
        process.wait()
    ours = locked(device, memory)
    return Finding(check, f"the dead one {theirs}, this one {ours}", "it is had again", theirs == ours == "registered")


def calling(device: Device, num_bytes: int) -> Finding:
    """How long page-locking delays calls of other processes: the driver holds locks meanwhile."""
    check = f"calls of another process while this one page-locks {show_bytes(num_bytes)}"
    try:
        with shared(num_bytes) as memory, neighbour("call", memory) as (process, _):
            ours = locked(device, memory)
            out, _ = process.communicate()
    except NoMemory as error:
        return skipped(check, str(error))
    return Finding(check, f"{out.strip()}; this one {ours}")


def locked(device: Device, memory: Shared) -> str:
    """Page-locks the memory, undoes it, and returns the state that the lock reached."""
    with PageLock(device, memory.address, memory.num_bytes, mmap.PAGESIZE, "bench") as lock:
        lock.wait()
        return f"{lock.state} {lock.reason}".strip()


@contextlib.contextmanager
def neighbour(task: str, memory: Shared) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Runs another process during the block. Yields it and the first line that it printed."""
    command = [sys.executable, "-m", __spec__.name, task, str(memory.fd), str(memory.num_bytes)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=[memory.fd])
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip() or "ended"
    finally:
        if process.poll() is None:
            process.communicate()


# --- what that process does, until its input ends --------------------------------------------------------------------


def lock(device: Device, fd: int, num_bytes: int) -> None:
    with (
        mapped(fd, num_bytes) as address,
        PageLock(device, address, num_bytes, mmap.PAGESIZE, "bench") as made,
    ):
        made.wait()
        print(f"{made.state} {made.reason}".strip(), flush=True)
        sys.stdin.read()


def call(device: Device) -> None:
    print("calls", flush=True)
    longest, n = 0.0, 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        device.free(device.alloc(2**20))
        longest, n = max(longest, time.monotonic() - began), n + 1
    print(f"{n} times an alloc and a free, {longest * 1e3:.1f} ms at most")


def main(task: str, fd: int, num_bytes: int) -> None:
    with open_device() as device:
        if task == "lock":
            lock(device, fd, num_bytes)
        else:
            call(device)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
