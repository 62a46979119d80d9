"""ArrayCodec: converts a row of a column in the heap to bytes, and back.

A row is a header and a body. The header is a little-endian uint32 for each axis of any size (None) of the column's
shape; columns of a fixed shape have none. The body is the row itself, in C order and the machine's byte order, or an
LZ4 block of it if that is shorter. So a body with as many bytes as the row is never compressed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import lz4.block
import numpy as np
import numpy.typing as npt

from shmreplay.columns.specs import ArraySpec

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

SIZE = np.dtype("<u4")  # dtype of a stored size
_MAX_BYTES = 2**32 - 2  # 2**32 - 1 stands for "no value"
_MAX_LZ4_BYTES = 0x7E000000
# The most bytes that each byte of an LZ4 block can expand to, and what the first ones add.
_LZ4_GROWTH, _LZ4_START = 255, 64


class DamagedBytes(ValueError):
    """Stored bytes that cannot be what a codec wrote."""


@dataclass(frozen=True)
class ArrayCodec:
    """The codec of the rows of one column, `spec`."""

    spec: ArraySpec

    def encode(self, row: Array) -> Bytes:
        """Returns the bytes of a row, of exactly the column's dtype, C-contiguous; they may share its memory.

        Raises:
            ValueError: the row is too long for the heap; the text says how long it is.
        """
        body = row.reshape(-1).view(np.uint8)
        if self.spec.compression is not None:
            body = _compressed(body)
        free = [size for size, fixed in zip(row.shape, self.spec.shape, strict=True) if fixed is None]
        if body.size + SIZE.itemsize * len(free) > _MAX_BYTES or max(free, default=0) > _MAX_BYTES:
            raise ValueError(f"a row of shape {row.shape} has {body.size} bytes to store; at most {_MAX_BYTES} can be")
        return np.concatenate([np.array(free, SIZE).view(np.uint8), body]) if free else body

    def shape(self, stored: Bytes) -> tuple[int, ...]:
        """Returns the shape of a stored row.

        Raises:
            DamagedBytes: these are not the bytes of a row.
        """
        free = self.free_sizes(stored).tolist()
        return tuple(free.pop(0) if size is None else size for size in self.spec.shape)

    def free_sizes(self, stored: Bytes) -> npt.NDArray[np.uint32]:
        """Returns the sizes of the axes of any size, uint32 `[number of them]`.

        Raises:
            DamagedBytes: these are not the bytes of a row.
        """
        if stored.size < self.header_bytes:
            raise DamagedBytes(f"{stored.size} stored bytes; expected {self.header_bytes} of a header at least")
        return np.asarray(stored[: self.header_bytes].view(SIZE), np.uint32)

    def decode(self, stored: Bytes) -> Array:
        """Returns the row that `encode` was given; it may share the memory of `stored`.

        Never allocates more memory than these bytes can expand to, even if they are damaged.

        Raises:
            DamagedBytes: these are not the bytes of a row.
        """
        shape = self.shape(stored)
        body = stored[self.header_bytes :]
        num_bytes = math.prod(shape) * self.spec.dtype.itemsize
        if body.size != num_bytes:
            body = self._decompressed(body, num_bytes)
        row: Array = body.view(self.spec.dtype).reshape(shape)
        return row

    def _decompressed(self, body: Bytes, num_bytes: int) -> Bytes:
        is_possible = body.size < num_bytes <= _LZ4_GROWTH * body.size + _LZ4_START
        if self.spec.compression is None or not is_possible:
            raise DamagedBytes(f"{body.size} stored bytes for a row of {num_bytes}")
        try:
            raw = lz4.block.decompress(body, uncompressed_size=num_bytes, return_bytearray=True)
        except lz4.block.LZ4BlockError as error:
            raise DamagedBytes(f"{body.size} stored bytes that are no LZ4 block of {num_bytes} ({error})") from error
        if len(raw) != num_bytes:
            raise DamagedBytes(f"an LZ4 block of {len(raw)} bytes for a row of {num_bytes}")
        return np.frombuffer(raw, np.uint8)

    @property
    def header_bytes(self) -> int:
        """Bytes in front of the body."""
        return SIZE.itemsize * self.spec.shape.count(None)


def _compressed(body: Bytes) -> Bytes:
    if body.size > _MAX_LZ4_BYTES:
        return body
    block = lz4.block.compress(body, store_size=False)
    return np.frombuffer(block, np.uint8) if len(block) < body.size else body
