"""Batches of a PyTorch learner by each way to the GPU, side by side: how fast, at what cost, whether any is torn."""

import contextlib
import ctypes
import dataclasses
import importlib.util
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import shmreplay as sr
from bench.gpu.finding import Finding, skipped
from bench.gpu.shared import shared
from shmreplay.base.host_memory import show_bytes
from shmreplay.clients.cuda.device import Device
from shmreplay.clients.tables.table import TableHandle
from shmreplay.errors import ShmReplayError

if TYPE_CHECKING:
    from shmreplay.clients.torch import TorchSampler
    from shmreplay.clients.torch.choice import Transfer

WAYS: tuple["Transfer", ...] = ("gather", "staging", "pageable")
WINDOW_S = 3.0  # how long one way is measured; the first third warms up
FRAMES, BATCH = (84, 84, 4), 1024
ROW, SMALL_BATCH = (16,), 4096


@dataclasses.dataclass(frozen=True)
class Rate:
    """The measurements of one way.

    Attributes:
        batches_per_s: batches per second that reached the GPU.
        processor_s: processor time per batch, of all threads of this process.
        gathered, sent, read: bytes per batch that the processor copied, that were sent to the GPU, and that the GPU
            read from the segment.
    """

    batches_per_s: float
    processor_s: float
    gathered: float
    sent: float
    read: float

    def __str__(self) -> str:
        moved = ", ".join(f"{show_bytes(round(getattr(self, name)))} {name}" for name in ("gathered", "sent", "read"))
        return f"{self.batches_per_s:.0f}/s, {self.processor_s * 1e3:.2f} ms of the processor, {moved}"


def checks(device: Device, items: int) -> Iterator[Finding]:
    """Runs the checks. `items` is the number of items in the table of frames, 28 kB each."""
    if importlib.util.find_spec("torch") is None:
        yield skipped("batches of a PyTorch learner", "torch is not installed")
        return
    yield torch_agrees(device)
    with filled(FRAMES, "uint8", items) as (server, table):
        yield side_by_side(device, table, BATCH, f"{BATCH} frames of 28,224 B a batch")
        yield torn(device, server, table)
    with filled(ROW, "float32", 50 * items) as (_, table):
        yield side_by_side(device, table, SMALL_BATCH, f"{SMALL_BATCH} rows of 64 B a batch")


def torch_agrees(device: Device) -> Finding:
    """Torch sees registered memory as pinned, and an error of the driver in our call does not come up in torch."""
    import torch

    check = "a tensor over registered memory, and torch after a refusal"
    if not torch.cuda.is_available():
        return skipped(check, f"torch {torch.__version__} sees no GPU")
    with shared(2**20) as memory:
        tensor = torch.frombuffer((ctypes.c_uint8 * memory.num_bytes).from_address(memory.address), dtype=torch.uint8)
        before, address = tensor.is_pinned(), tensor.data_ptr()
        device.register(memory.address, memory.num_bytes)
        pinned = tensor.is_pinned()
        refused = device.result("cuMemHostRegister_v2", memory.address, memory.num_bytes, 0)  # it is registered
        zero = float(torch.zeros(1, device=f"cuda:{device.ordinal}").sum())
        device.unregister(memory.address)
    is_kept = (before, pinned, refused != 0, zero, tensor.data_ptr()) == (False, True, True, 0.0, address)
    found = f"is_pinned() {before}, registered {pinned}; after a refusal ({refused}) torch goes on"
    return Finding(check, found, "it is pinned, and torch goes on", is_kept)


@contextlib.contextmanager
def filled(shape: tuple[int, ...], dtype: str, items: int) -> Iterator[tuple[sr.Server, TableHandle]]:
    """A full table with the column "x"; all values of an item are equal."""
    spec = sr.ArraySpec(shape, dtype)
    with sr.Server([sr.Table("bench", {"x": spec}, items)]) as server, server.client() as client:
        table = client.table("bench", seed=1)
        for first in range(0, items, 100):
            table.insert_batch({"x": alike(shape, dtype, range(first, first + 100))})
        yield server, table


def alike(shape: tuple[int, ...], dtype: str, numbers: range) -> NDArray[Any]:
    """Items whose values are all equal to their number."""
    values = (np.asarray(numbers) % 251).astype(dtype)
    return np.broadcast_to(values.reshape(-1, *[1] * len(shape)), (len(values), *shape)).copy()


def side_by_side(device: Device, table: TableHandle, batch: int, what: str) -> Finding:
    """Measures all ways that are possible. The ratios are those of their batches per second."""
    rates: dict[str, Rate] = {}
    lines = []
    for way in WAYS:
        try:
            with sampler(device, table, batch, way) as batches:
                rates[way] = rate(batches)
            lines.append(f"{way} {rates[way]}")
        except ShmReplayError as error:
            lines.append(f"{way} is not to be had: {error}")
    ratios = [
        f"{one} is {rates[one].batches_per_s / rates[other].batches_per_s:.2f} times {other}"
        for one, other in (("gather", "staging"), ("staging", "pageable"))
        if one in rates and other in rates
    ]
    return Finding(what, "; ".join([*lines, *ratios]))


def sampler(device: Device, table: TableHandle, batch: int, way: "Transfer") -> "TorchSampler":
    from shmreplay.clients.torch import TorchSampler

    return TorchSampler(table, batch, device=f"cuda:{device.ordinal}", transfer=way)


def rate(batches: "TorchSampler") -> Rate:
    """Measures a learner that only reads one number of each batch, which must have arrived for that."""

    def run(seconds: float) -> int:
        n, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            next(batches).data["x"].flatten()[-1].item()
            n += 1
        return n

    run(WINDOW_S / 3)
    before, processor, began = batches.info(), time.process_time(), time.monotonic()
    n = run(WINDOW_S * 2 / 3)
    took, processor, after = time.monotonic() - began, time.process_time() - processor, batches.info()
    moved = [getattr(after, f) - getattr(before, f) for f in ("gathered_bytes", "sent_bytes", "read_bytes")]
    return Rate(n / took, processor / n, *(number / max(after.batches - before.batches, 1) for number in moved))


def torn(device: Device, server: sr.Server, table: TableHandle) -> Finding:
    """Batches that a GPU gathers while a writer overwrites the table at full speed; each item has one value."""
    check = "gather while a writer overwrites at full speed"
    n = bad = 0
    try:
        with sampler(device, table, BATCH, "gather") as batches, writing(server):
            before, until = table.info().inserts, time.monotonic() + WINDOW_S
            while time.monotonic() < until:
                rows = next(batches).data["x"].flatten(1)
                bad += int((rows != rows[:, :1]).any(1).sum())
                n += BATCH
            inserted = table.info().inserts - before
    except ShmReplayError as error:
        return skipped(check, str(error))
    found = f"{bad} of {n:,} items torn; {inserted:,} inserted meanwhile, in a table of {len(table):,}"
    return Finding(check, found, "0 torn", bad == 0 and inserted > 0)


@contextlib.contextmanager
def writing(server: sr.Server) -> Iterator[None]:
    """Runs a process that inserts without a pause during the block."""
    command, pipe = [sys.executable, "-m", __spec__.name, server.address], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.communicate()


def main(address: str) -> None:
    """The work of that process, until its standard input ends."""
    steps = {"x": alike(FRAMES, "uint8", range(64))}
    with sr.connect(address) as client:
        table = client.table("bench")
        table.insert_batch(steps)
        print("at work", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            table.insert_batch(steps)


if __name__ == "__main__":
    main(sys.argv[1])
