"""How fast bytes get to the GPU: from a page-locked segment, from a pinned buffer, and from ordinary memory."""

import contextlib
import statistics
import time
from collections.abc import Iterator

from bench.gpu.finding import Finding, skipped
from bench.gpu.shared import shared
from shmreplay.base.host_memory import show_bytes
from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.errors import CudaError
from shmreplay.clients.cuda.event import Event

REPEATS = 11
LEAST_RATIO = 2.0


def checks(device: Device, num_bytes: int) -> Iterator[Finding]:
    """Runs the check. `num_bytes` is the size of one copy."""
    check = f"copy {show_bytes(num_bytes)} to the GPU"
    try:
        with (
            shared(num_bytes) as memory,
            shared(num_bytes) as other,
            registered(device, other.address, num_bytes),
            pinned(device, num_bytes) as buffer,
            on_device(device, num_bytes) as to,
        ):
            sources = {"pageable": memory.address, "registered": other.address, "pinned": buffer}
            rates = {name: rate(device, to, address, num_bytes) for name, address in sources.items()}
    except CudaError as error:
        yield skipped(check, str(error))
        return
    ratio = rates["registered"] / rates["pageable"]
    found = ", ".join(f"{name} {value / 1e9:.1f} GB/s" for name, value in rates.items())
    found += f"; registered is {ratio:.2f} times pageable"
    yield Finding(check, found, f"at least {LEAST_RATIO:g} times", ratio >= LEAST_RATIO)


def rate(device: Device, to: int, address: int, num_bytes: int) -> float:
    """Bytes per second: the median of some copies, one after the other."""
    event = Event(device)
    took = []
    for _ in range(REPEATS + 1):
        began = time.monotonic()
        device.copy_to_device_async(to, address, num_bytes, 0)
        event.record(0)
        while not event.is_done():
            pass
        took.append(time.monotonic() - began)
    event.destroy()
    return num_bytes / statistics.median(took[1:])


@contextlib.contextmanager
def registered(device: Device, address: int, num_bytes: int) -> Iterator[None]:
    device.register(address, num_bytes)
    try:
        yield
    finally:
        device.unregister(address)


@contextlib.contextmanager
def pinned(device: Device, num_bytes: int) -> Iterator[int]:
    address = device.host_alloc(num_bytes)
    try:
        yield address
    finally:
        device.host_free(address)


@contextlib.contextmanager
def on_device(device: Device, num_bytes: int) -> Iterator[int]:
    address = device.alloc(num_bytes)
    try:
        yield address
    finally:
        device.free(address)
