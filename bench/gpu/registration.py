"""What the driver does with existing memory: whether it page-locks it, how fast, and whether it gives it back."""

import mmap
import time
from collections.abc import Iterator

from bench.gpu.finding import Finding, skipped
from bench.gpu.shared import NoMemory, Shared, mapped, shared
from shmreplay.base.host_memory import show_bytes
from shmreplay.clients.cuda.device import Attribute, Device
from shmreplay.clients.cuda.errors import CudaError
from shmreplay.clients.cuda.page_lock import MAX_PIECE_BYTES, PageLock

DEFAULT, READ_ONLY = 0, 8  # of cuMemHostRegister
ROUNDS = 100
MOST_S_A_GIB = 0.25


def checks(device: Device, num_bytes: int) -> Iterator[Finding]:
    """Runs the checks. `num_bytes` is the size of the memory that is registered as a whole."""
    yield attributes(device)
    for kind in ("small pages", "huge pages", "hugetlb"):
        yield registering(device, num_bytes, kind)
    yield locking(device, num_bytes)
    yield read_only(device)
    yield rounds(device)


def attributes(device: Device) -> Finding:
    values = ", ".join(f"{a.name} ({a.value}) {int(device.has(a))}" for a in Attribute)
    return Finding("attributes", f"{device.name}, CUDA {device.driver.version}: {values}")


def registering(device: Device, num_bytes: int, kind: str) -> Finding:
    check = f"register {show_bytes(num_bytes)} of {kind}, touched before, in pieces of 1 GiB"
    try:
        with shared(num_bytes, kind) as memory:
            took = register_all(device, memory)
    except NoMemory as error:
        return skipped(check, str(error))
    except CudaError as error:
        return Finding(check, f"refused: {error}", "falls back", True)
    rule, most = ("", 0.0) if kind != "small pages" else (f"under {MOST_S_A_GIB} s a GiB", MOST_S_A_GIB)
    a_gib = took / num_bytes * 2**30
    return Finding(check, f"{took:.3f} s, {a_gib:.3f} s a GiB", rule, a_gib < most if rule else None)


def register_all(device: Device, memory: Shared) -> float:
    """Registers all memory, unregisters it, and returns the seconds that registering took."""
    starts = range(memory.address, memory.address + memory.num_bytes, MAX_PIECE_BYTES)
    done = []
    began = time.monotonic()
    try:
        for start in starts:
            device.register(start, min(MAX_PIECE_BYTES, memory.address + memory.num_bytes - start))
            done.append(start)
        return time.monotonic() - began
    finally:
        for start in reversed(done):
            device.unregister(start)


def locking(device: Device, num_bytes: int) -> Finding:
    """Registers the memory as a learner does: on a thread, with pauses."""
    check = f"page-lock {show_bytes(num_bytes)} of small pages as a learner does"
    try:
        with shared(num_bytes) as memory:
            began = time.monotonic()
            with PageLock(device, memory.address, num_bytes, mmap.PAGESIZE, "bench") as lock:
                lock.wait()
                took, state, reason = time.monotonic() - began, lock.state, lock.reason
    except NoMemory as error:
        return skipped(check, str(error))
    return Finding(check, f"{state} {reason}".strip() + f" in {took:.3f} s")


def read_only(device: Device) -> Finding:
    """After a refusal, the driver must work as before."""
    check, num_bytes = "register memory that is mapped for reading only", 2**20
    answers = []
    with shared(num_bytes) as memory, mapped(memory.fd, num_bytes, mmap.PROT_READ) as address:
        for name, flags in (("by default", DEFAULT), ("with READ_ONLY", READ_ONLY)):
            code = device.result("cuMemHostRegister_v2", address, num_bytes, flags)
            answers.append(f"{name} {device.driver.error('', code).name if code else 'taken'}")
            if code == 0:
                device.unregister(address)
        device.free(device.alloc(2**20))
    return Finding(check, ", ".join(answers) + "; the next call goes on", "the next call goes on", True)


def rounds(device: Device) -> Finding:
    check, num_bytes = f"map, lock, unlock and unmap {ROUNDS} times", 4 * 2**20
    for number in range(ROUNDS):
        with (
            shared(num_bytes) as memory,
            PageLock(device, memory.address, num_bytes, mmap.PAGESIZE, "bench") as lock,
        ):
            lock.wait()
            if lock.state != "registered":
                return Finding(check, f"{lock.state} in round {number}: {lock.reason}", "stable", False)
    return Finding(check, f"{ROUNDS} times {show_bytes(num_bytes)}", "stable", True)
