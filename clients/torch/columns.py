"""SegmentColumns: the columns of a page-locked segment as the GPU sees them. It reads their rows by number."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shmreplay.clients.batches.arrangement import ShownOutput
from shmreplay.clients.handles.handle import Handle
from shmreplay.clients.torch.device_tensors import DeviceTensors
from shmreplay.clients.torch.tensors import dtype_of

# Words by size, the largest first. A row begins at a multiple of each size that divides its bytes, because chunks and
# columns begin at multiples of 128 bytes.
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


class RowNumbers(NamedTuple):
    """Numbers of rows of the segment, as tensors on the device, `[...]` each.

    Attributes:
        chunks: int64, the number of each row's chunk.
        rows: int64, the number of the row in its chunk.
        missing: bool, True where there is no row; None: there is one everywhere.
    """

    chunks: Tensor
    rows: Tensor
    missing: Tensor | None

    @classmethod
    def of(cls, numbers: Tensor, chunk_steps: int, are_missing: bool) -> RowNumbers:
        """Divides numbers of the form chunk * chunk_steps + row; -1 means no row."""
        chunks = torch.div(numbers, chunk_steps, rounding_mode="floor")
        return cls(chunks, numbers - chunks * chunk_steps, numbers < 0 if are_missing else None)


class SegmentColumns:
    """The columns of one table as rows of words, because a gather moves bytes, whatever their dtype is.

    It keeps the segment mapped, but not page-locked. Whoever reads must hold the page lock and a lease of the rows.
    """

    def __init__(self, table: Handle, tensors: DeviceTensors) -> None:
        self._table = table
        self._tensors = tensors
        self._words: dict[int, Tensor] = {}

    def _words_of(self, column: int) -> Tensor:
        """The column as `[num_chunks, chunk_steps, words of a row]`, strided over the segment."""
        if (words := self._words.get(column)) is None:
            rows = self._tensors.column(self._table, column)
            rows = rows.unsqueeze(-1) if rows.ndim == 2 else rows.flatten(2)
            row_bytes = rows.shape[2] * rows.element_size()
            words = self._words[column] = rows.view(
                next(word for size, word in _WORDS.items() if row_bytes % size == 0)
            )
        return words

    def gather(self, output: ShownOutput, numbers: RowNumbers) -> Tensor:
        """Has the current stream of the device read rows. Returns them, `[..., *shape]`; 0 where there is no row."""
        found = self._words_of(output.column)[numbers.chunks, numbers.rows]
        if numbers.missing is not None:
            found.masked_fill_(numbers.missing.unsqueeze(-1), 0)
        return found.view(dtype_of(output.spec.dtype)).view(*numbers.chunks.shape, *output.spec.shape)
