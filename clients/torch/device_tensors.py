"""DeviceTensors: all that is torch.cuda's own. Nothing else here calls it, so that tests may do without a GPU."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from shmreplay.clients.cuda.errors import CudaUnavailable
from shmreplay.clients.handles.handle import Handle

_DLPACK_CUDA = 2


class DeviceTensors:
    """Memory of one GPU by torch's allocator, the learner's stream there, and a side stream for what goes ahead of it.

    Attributes:
        device: with its number.
        side_stream: the side stream's handle. It waits for no other one.
    """

    def __init__(self, device: torch.device) -> None:
        """Begins to use CUDA in this process, unless torch has.

        Raises:
            CudaUnavailable: torch has no such GPU.
        """
        if not torch.cuda.is_available():
            raise CudaUnavailable(f"torch {torch.__version__} sees no GPU; see torch.cuda.is_available()")
        number = torch.cuda.current_device() if device.index is None else device.index
        if number >= torch.cuda.device_count():
            raise CudaUnavailable(f"there is no GPU {number}; torch sees {torch.cuda.device_count()}, counted from 0")
        self.device = torch.device("cuda", number)
        # One of torch's own, which live as long as the process.
        self._side: Any = torch.cuda.Stream(self.device)
        self.side_stream = int(self._side.cuda_stream)

    @property
    def current_stream(self) -> int:
        """The handle of the stream that the calling thread's kernels go to now."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def empty(self, num_bytes: int) -> Tensor:
        """uint8 `[num_bytes]`, for the side stream to write to; when it is free again it is the side stream's."""
        with torch.cuda.stream(self._side):
            return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    def hand_over(self, tensor: Tensor) -> None:
        """From now on the calling thread's current stream uses it too: it is not free before that has done so."""
        tensor.record_stream(torch.cuda.current_stream(self.device))

    def on_side_stream(self) -> contextlib.AbstractContextManager[object]:
        """Kernels of the calling thread go to the side stream meanwhile."""
        return torch.cuda.stream(self._side)

    def column(self, table: Handle, number: int) -> Tensor:
        """A column of the table's segment, `[num_chunks, chunk_steps, *shape]`, where it lies: the segment has to be
        page-locked, under one address for processor and GPU, as long as anybody reads there.

        Raises:
            TypeError: it does not lie plain, or torch has no such dtype.
        """
        column: Tensor = from_dlpack(table._native.column(number, _DLPACK_CUDA, self.device.index))
        return column
