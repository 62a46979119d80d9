"""PinnedRing: a few page-locked buffers, filled and copied to the GPU in turn, each reused when its copy is done."""

from __future__ import annotations

import logging
import mmap
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.errors import CudaError
from shmreplay.clients.cuda.event import Event
from shmreplay.errors import ShmReplayError

logger = logging.getLogger("shmreplay")

LAST_COPIES_S = 10.0  # how long a ring waits for running copies at its end; a GPU that takes longer hangs


@dataclass(frozen=True, eq=False)
class PinnedSlot:
    """One buffer of a ring.

    Attributes:
        array: uint8 `[slot_bytes]`, page-locked, of whole pages. It stays valid as long as it is referenced.
        address: where it begins.
        event: done when the copies out of the buffer are.
    """

    array: NDArray[np.uint8]
    address: int
    event: Event

    def sent(self, stream: int) -> None:
        """Says that the copies out of it were given to the stream. The ring waits for them before its next turn."""
        self.event.record(stream)


class PinnedRing:
    """`num_slots` buffers in one piece of page-locked memory. A context manager; for one thread at a time.

    It has a handle of the GPU of its own, so it may outlive the one that it is made with. Such memory needs no
    permission and works where `PageLock` is refused. A ring has some MB, which nearly every machine can give.
    """

    def __init__(self, device: Device, num_slots: int, slot_bytes: int) -> None:
        """Allocates `num_slots` buffers of `slot_bytes`, each rounded up to whole pages.

        Raises:
            CudaError: the driver has no such memory to give.
            ValueError: a number is not positive.
        """
        for name, value in (("num_slots", num_slots), ("slot_bytes", slot_bytes)):
            if value < 1:
                raise ValueError(f"a ring of pinned buffers: {name} is {value}; expected at least 1")
        stride = -(-slot_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = _Memory(device, num_slots * stride, num_slots)
        whole = np.asarray(memory)
        self.slot_bytes = stride
        self._slots = [
            PinnedSlot(whole[i * stride : (i + 1) * stride], memory.address + i * stride, event)
            for i, event in enumerate(memory.events)
        ]
        self._turn = 0

    def __len__(self) -> int:
        return len(self._slots)

    def take(self, timeout_s: float | None = None) -> PinnedSlot | None:
        """The next buffer, once the copies out of it are done; None if they are not within `timeout_s` seconds.

        It belongs to the caller until its next turn, whether or not `sent` is called. Ctrl-C ends the wait.

        Raises:
            CudaError: the GPU failed since the last turn.
            ShmReplayError: the ring is closed.
        """
        if not self._slots:
            raise ShmReplayError("this ring of pinned buffers is closed; make another one")
        slot = self._slots[self._turn]
        if not slot.event.wait(timeout_s):
            return None
        self._turn = (self._turn + 1) % len(self._slots)
        return slot

    def close(self) -> None:
        """Frees the memory, once running copies are done and nobody refers to an array of it. Idempotent."""
        self._slots = []

    def __enter__(self) -> PinnedRing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Memory:
    """Page-locked memory, and the events of copies out of it. Freed when nothing refers to an array of it any more."""

    def __init__(self, device: Device, num_bytes: int, num_events: int) -> None:
        own = device.again()
        self.events: list[Event] = []
        try:
            self.address = own.host_alloc(num_bytes)
            # Not at exit: threads may copy until the very end, and the memory ends with the process anyway.
            weakref.finalize(self, _give_back, own, self.address, self.events).atexit = False
        except BaseException:
            own.close()
            raise
        for _ in range(num_events):
            self.events.append(Event(own))  # one by one: if one is refused, the others are destroyed
        self._num_bytes = num_bytes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "typestr": "|u1", "shape": (self._num_bytes,), "data": (self.address, False)}


def _give_back(device: Device, address: int, events: list[Event]) -> None:
    """Frees the memory. It runs wherever the last reference disappears, so it raises nothing."""
    if not device.driver.is_own:
        return  # it belongs to the parent
    try:
        if not all(event.wait(LAST_COPIES_S) for event in events):
            number, patience_s = device.ordinal, LAST_COPIES_S
            logger.warning("GPU %d still copies after %g s; the pinned buffers are left to it", number, patience_s)
            return
        for event in events:
            event.destroy()
        device.host_free(address)
        device.close()
    except CudaError as error:
        logger.warning("GPU %d does not take its pinned buffers back: %s", device.ordinal, error)
