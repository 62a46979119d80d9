"""SegmentColumns: the columns of a page-locked segment as the GPU sees them, and rows of them by number."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shmreplay.clients.batches.arrangement import ShownOutput
from shmreplay.clients.handles.handle import Handle
from shmreplay.clients.torch.device_tensors import DeviceTensors
from shmreplay.clients.torch.tensors import dtype_of

# The largest first; rows begin at a multiple of what divides them, since chunks and columns begin at one of 128 bytes.
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


class RowNumbers(NamedTuple):
    """Rows of the segment, as the device indexes them, int64 `[...]`.

    Attributes:
        chunks: which chunk each is in.
        rows: which row there.
        missing: bool, where there is none; None: nowhere.
    """

    chunks: Tensor
    rows: Tensor
    missing: Tensor | None

    @classmethod
    def of(cls, numbers: Tensor, chunk_steps: int, are_missing: bool) -> RowNumbers:
        """From chunk * chunk_steps + row, -1 where there is no row."""
        chunks = torch.div(numbers, chunk_steps, rounding_mode="floor")
        return cls(chunks, numbers - chunks * chunk_steps, numbers < 0 if are_missing else None)


class SegmentColumns:
    """Of one table, each looked at as words of a row: a gather moves bytes, whatever they are.

    It keeps the mapping, not the registration: a reader must hold the registration and a lease.
    """

    def __init__(self, table: Handle, tensors: DeviceTensors) -> None:
        self._table = table
        self._tensors = tensors
        self._words: dict[int, Tensor] = {}

    def _words_of(self, column: int) -> Tensor:
        """`[num_chunks, chunk_steps, words of a row]`, strided over the segment."""
        if (words := self._words.get(column)) is None:
            rows = self._tensors.column(self._table, column)
            rows = rows.unsqueeze(-1) if rows.ndim == 2 else rows.flatten(2)
            row_bytes = rows.shape[2] * rows.element_size()
            words = self._words[column] = rows.view(
                next(word for size, word in _WORDS.items() if row_bytes % size == 0)
            )
        return words

    def gather(self, output: ShownOutput, numbers: RowNumbers) -> Tensor:
        """The rows of those numbers, `[..., *shape]`, 0 where there is none: read by the current stream of the
        device."""
        found = self._words_of(output.column)[numbers.chunks, numbers.rows]
        if numbers.missing is not None:
            found.masked_fill_(numbers.missing.unsqueeze(-1), 0)
        return found.view(dtype_of(output.spec.dtype)).view(*numbers.chunks.shape, *output.spec.shape)
