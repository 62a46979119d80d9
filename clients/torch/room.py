"""PinnedRoom: page-locked memory for one batch at a time. One copy brings the batch from there to the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.pinned import PinnedRing
from shmreplay.clients.torch.parts import TorchParts
from shmreplay.clients.torch.tensors import dtype_of

ALIGNMENT = 256  # as CUDA aligns its own allocations


class Place(NamedTuple):
    """Where an array is in a room, and where its copy is in the device's memory: `offset` bytes from the beginning."""

    offset: int
    num_bytes: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def tensor(self, memory: Tensor) -> Tensor:
        """Returns the tensor at this place of `memory`, uint8. Raises TypeError as `dtype_of`."""
        piece = memory[self.offset : self.offset + self.num_bytes]
        return piece.view(dtype_of(self.dtype)).view(self.shape)


class PinnedRoom:
    """Page-locked memory with places for a batch's arrays, which the core writes to, and spare space after them.

    For one thread at a time.

    Attributes:
        arrays: the places, arrays of the shapes and dtypes in `like`; None where `like` has None.
    """

    def __init__(self, device: Device, like: Sequence[NDArray[Any] | None], spare_bytes: int) -> None:
        """`spare_bytes` is the space for arrays without a place. Raises CudaError if the driver has no such memory."""
        self._end = sum(_aligned(array.nbytes) for array in like if array is not None)
        self._ring = PinnedRing(device, 1, self._end + spare_bytes)
        slot = self._ring.take()
        assert slot is not None  # it has never been used
        self._slot = slot
        self.arrays: list[NDArray[Any] | None] = []
        offset = 0
        for array in like:
            self.arrays.append(None if array is None else self._array(offset, array))
            offset += 0 if array is None else _aligned(array.nbytes)

    def _array(self, offset: int, like: NDArray[Any]) -> NDArray[Any]:
        return self._slot.array[offset : offset + like.nbytes].view(like.dtype).reshape(like.shape)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the GPU has done all work up to the last `send` or `mark`.

        Returns False if that takes more than `timeout_s` seconds. Ctrl-C ends the wait. Raises CudaError if the GPU
        failed since.
        """
        return self._slot.event.wait(timeout_s)

    def has_space_for(self, parts: TorchParts) -> bool:
        """Whether there is space for all arrays that are not in the room already."""
        return self._end + space_for(parts, self) <= len(self._slot.array)

    def holds(self, array: NDArray[Any]) -> bool:
        """Whether the array is in the room, in one piece."""
        return array.flags.c_contiguous and 0 <= self._offset_of(array) <= len(self._slot.array) - array.nbytes

    def _offset_of(self, array: NDArray[Any]) -> int:
        return int(array.__array_interface__["data"][0]) - self._slot.address

    def take_in(self, parts: TorchParts) -> tuple[TorchParts, int]:
        """Copies those of a batch's arrays that are elsewhere into the spare space.

        Returns:
            The places of all arrays, and how many bytes of the room must be sent.
        """
        end = self._end

        def place(array: NDArray[Any]) -> Place:
            nonlocal end
            if self.holds(array) and array.nbytes > 0:
                return Place(self._offset_of(array), array.nbytes, array.shape, array.dtype)
            offset, end = end, end + _aligned(array.nbytes)
            self._array(offset, array)[...] = array
            return Place(offset, array.nbytes, array.shape, array.dtype)

        return parts.map(place), end

    def send(self, device: Device, memory: Tensor, num_bytes: int, stream: int) -> None:
        """Has the stream copy the first `num_bytes` bytes to the device's memory. Raises CudaError."""
        device.copy_to_device_async(memory.data_ptr(), self._slot.address, num_bytes, stream)
        self.mark(stream)

    def mark(self, stream: int) -> None:
        """From now on, `wait` waits for all work that the stream has been given so far. Raises CudaError."""
        self._slot.sent(stream)

    def make_wait(self, stream: int) -> None:
        """Makes all later work of the stream wait for the last `send` or `mark`."""
        self._slot.event.hold_up(stream)

    def close(self) -> None:
        """Frees the memory, once running copies are done and nobody refers to an array of it."""
        self._ring.close()


def space_for(parts: TorchParts, room: PinnedRoom | None) -> int:
    """Bytes that the arrays of a batch take that are not in the room already."""
    return sum(_aligned(array.nbytes) for array in _arrays(parts) if room is None or not room.holds(array))


def _arrays(parts: TorchParts) -> Iterator[NDArray[Any]]:
    for values in (parts.data, parts.lengths, parts.masks, parts.sizes, parts.numbers.values()):
        yield from (value for value in values if isinstance(value, np.ndarray))


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
