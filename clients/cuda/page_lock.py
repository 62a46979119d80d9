"""PageLock: page-locks existing memory for a GPU, piece by piece, on a thread, while the memory is in use.

The driver holds locks of its own while it page-locks memory, and calls of other processes to it wait. So it is asked
for one piece at a time, with a pause after each piece that is as long as the piece took. What a driver refuses differs
from host to host: all registering (confidential computing), pieces above some size (old kernels, busy processes), or
everything beyond some total (WSL). So a piece that is refused is halved; if the smallest piece is refused, everything
is undone, because a part of a segment would be of no use.
"""

from __future__ import annotations

import ctypes
import logging
import math
import mmap
import time
from types import TracebackType
from typing import Literal

from shmreplay.base.host_memory import show_bytes
from shmreplay.base.once import Once
from shmreplay.base.own_thread import OwnThread, Threads
from shmreplay.clients.cuda.device import Attribute, Device
from shmreplay.clients.cuda.errors import CudaError, Result

logger = logging.getLogger("shmreplay")

State = Literal["waiting", "registering", "registered", "refused", "closed"]

MAX_PIECE_BYTES = 2**30
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1e-3, 0.2
# After these errors, smaller pieces would be refused as well.
_FINAL = (Result.NOT_SUPPORTED, Result.HOST_MEMORY_ALREADY_REGISTERED)
_MADV_POPULATE_WRITE = 23

page_lock_threads = Threads()
_left_to_the_driver: list[object] = []  # objects that keep memory mapped which the driver did not unregister


class PageLock:
    """One range of memory, page-locked for one GPU until `close`. Safe to use from threads. Idle in a forked child.

    The memory begins at a page, consists of chunks, and is registered in pieces of at most 1 GiB. A piece ends where
    both a page and a chunk end, so a copy of a chunk's rows never crosses pieces. If chunks are not whole pages, that
    is the case every few chunks: every 32 at most, since the size of a chunk is a multiple of 128 bytes. If that is
    more than 1 GiB, pieces are larger. The last piece ends with the page in which the memory ends.
    """

    def __init__(
        self,
        device: Device,
        address: int,
        num_bytes: int,
        chunk_bytes: int,
        where: str,
        *,
        keeps: object = None,
        after: PageLock | None = None,
    ) -> None:
        """Begins at once, on a thread of its own.

        Args:
            device: the GPU; this lock makes a handle of its own.
            address, num_bytes, chunk_bytes: where the memory begins, its size, and the size of its chunks.
            where: the name of the memory in log lines.
            keeps: an object that keeps the memory mapped; it is released when the last piece is unregistered.
            after: an ended lock of the same memory; this one begins when that one has unregistered everything.

        Raises:
            ValueError: the memory does not begin at a page, or is empty.
            CudaError: the GPU gives no further handle.
            ShmReplayError: the system gives no thread.
        """
        if address % mmap.PAGESIZE or num_bytes < 1 or chunk_bytes < 1:
            raise ValueError(
                f"{where}: {num_bytes} bytes in chunks of {chunk_bytes} at {address:#x} cannot be page-locked; "
                f"expected a positive number of both, from a multiple of {mmap.PAGESIZE} on"
            )
        self._device = device.again()
        self._address = address
        self._num_bytes = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._step_bytes = math.lcm(chunk_bytes, mmap.PAGESIZE)
        self._where = where
        self._keeps, self._after = keeps, after
        self._pieces: list[tuple[int, int]] = []  # address and bytes of what is registered
        self._state: State = "waiting"
        self._reason = ""
        self._settled, self._end = Once(), Once()
        self._thread = OwnThread(page_lock_threads, self, "shmreplay-page-lock", "end other threads")
        try:
            if not self._thread.start(self._run):
                self._give_up()  # Python exits
        except BaseException:
            self._give_up()
            raise

    @property
    def state(self) -> State:
        """The state: "waiting" for `after`, "registering", "registered" (the GPU may read all of the memory), "refused"
        (nothing is registered) or "closed".
        """
        return self._state if self._device.driver.is_own and not self._end.is_set else "closed"

    @property
    def is_over(self) -> bool:
        """Whether it was ended and nothing is registered any more."""
        return self._end.is_set and self._thread.has_ended

    @property
    def reason(self) -> str:
        """Why it was refused; "" if it was not."""
        return self._reason

    @property
    def progress(self) -> float:
        """The share of the memory that is registered, from 0 to 1."""
        return sum(size for _, size in self._pieces) / self._num_bytes

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it is neither "waiting" nor "registering". Returns whether that is so.

        Ctrl-C ends the wait, and handlers of signals may wait, too.
        """
        return not self._device.driver.is_own or self._settled.wait(timeout_s)

    def end(self) -> None:
        """Has the thread unregister everything, after the piece that it works on. Does not wait for that."""
        if self._device.driver.is_own:
            self._end.set()

    def close(self) -> None:
        """Unregisters everything, and returns when nothing is registered any more. Idempotent.

        The GPU must not read the memory any more. It may take as long as registering a piece.
        """
        if self._device.driver.is_own:
            self._end.set()
            self._thread.join()

    def leave(self) -> None:
        """See `Owner`."""
        self.end()

    def left(self) -> None:
        """See `Owner`: nothing is left to do."""

    def _give_up(self) -> None:
        """Ends it when there may be no thread to do so."""
        self._end.set()
        if not self._thread.join():
            self._device.close()
        self._settled.set()

    def __enter__(self) -> PageLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._after is not None:
                self._after.close()
                self._after = None
            self._register()
            self._end.wait()
        finally:  # whatever happens, nothing may stay registered when the memory is unmapped
            self._unregister()
            self._device.close()
            self._keeps = None
            self._end.set()
            self._settled.set()

    def _register(self) -> None:
        self._state = "registering"
        try:
            refusal = self._what_it_lacks() or self._register_pieces()
        except CudaError as error:
            refusal = f"the driver does not say what the GPU can do: {error}"
        if refusal is None:
            self._state = "registered"
        else:
            self._unregister()
            self._state, self._reason = "refused", refusal
            logger.warning(
                "%s: its memory cannot be page-locked for GPU %d, which takes batches by another way: %s",
                self._where,
                self._device.ordinal,
                refusal,
            )
        self._settled.set()

    def _what_it_lacks(self) -> str | None:
        if not self._device.has(Attribute.HOST_REGISTER_SUPPORTED):
            return "the GPU or its driver does not do that"
        if not self._device.has(Attribute.CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM):
            return "the GPU would see it at another address, piece by piece (as under WSL)"
        return None

    def _register_pieces(self) -> str | None:
        """Registers piece by piece, until all is registered or `end`. Returns why the smallest was refused, or None."""
        done, piece = 0, max(MAX_PIECE_BYTES // self._step_bytes, 1) * self._step_bytes
        pause_s = 0.0
        while done < self._num_bytes and not self._end.wait(pause_s):
            size = min(piece, self._num_bytes - done)
            began = time.monotonic()
            error = self._try(self._address + done, size)
            pause_s = min(max(time.monotonic() - began, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
            if error is None:
                done += size
            elif error.code in _FINAL or size <= self._step_bytes:
                return f"{error}, for {show_bytes(size)} after {show_bytes(done)} of {show_bytes(self._num_bytes)}"
            else:
                piece = max(-(-size // self._step_bytes) // 2, 1) * self._step_bytes
        return None

    def _try(self, address: int, size: int) -> CudaError | None:
        _populate(address, size)
        try:
            self._device.register(address, size)
        except CudaError as error:
            return error
        self._pieces.append((address, size))
        return None

    def _unregister(self) -> None:
        """Unregisters the pieces, last one first. One that the driver refuses stays mapped until the process ends."""
        while self._pieces:
            address, size = self._pieces.pop()
            try:
                self._device.unregister(address)
            except CudaError as error:
                _left_to_the_driver.append(self._keeps)
                logger.warning("%s: %s at %#x stay page-locked: %s", self._where, show_bytes(size), address, error)


def _populate(address: int, size: int) -> None:
    """Has the kernel enter all pages into this process' page tables, so that the driver holds its locks half as long.

    Before Linux 5.14 that has no effect, and the driver does it.
    """
    ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_POPULATE_WRITE)
