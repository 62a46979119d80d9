"""DeviceTensors: all calls of torch.cuda. No other module here makes any, so that tests can run without a GPU."""

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
    """Memory of one GPU from torch's allocator, the learner's stream, and a side stream for work ahead of the learner.

    Attributes:
        device: the GPU, with its number.
        side_stream: handle of the side stream, which waits for no other stream.
    """

    def __init__(self, device: torch.device) -> None:
        """Starts to use CUDA in this process, if torch does not use it yet.

        Raises:
            CudaUnavailable: torch has no such GPU.
        """
        if not torch.cuda.is_available():
            raise CudaUnavailable(f"torch {torch.__version__} sees no GPU; see torch.cuda.is_available()")
        number = torch.cuda.current_device() if device.index is None else device.index
        if number >= torch.cuda.device_count():
            raise CudaUnavailable(f"there is no GPU {number}; torch sees {torch.cuda.device_count()}, counted from 0")
        self.device = torch.device("cuda", number)
        # A stream from torch's pool, whose streams live as long as the process.
        self._side: Any = torch.cuda.Stream(self.device)
        self.side_stream = int(self._side.cuda_stream)

    @property
    def current_stream(self) -> int:
        """The handle of the calling thread's current stream."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def empty(self, num_bytes: int) -> Tensor:
        """Returns uint8 `[num_bytes]` for the side stream to write to. When freed, it goes back to that stream."""
        with torch.cuda.stream(self._side):
            return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    def hand_over(self, tensor: Tensor) -> None:
        """Keeps a tensor's memory from being reused before the calling thread's current stream is done with it."""
        tensor.record_stream(torch.cuda.current_stream(self.device))

    def on_side_stream(self) -> contextlib.AbstractContextManager[object]:
        """Within the block, kernels of the calling thread go to the side stream."""
        return torch.cuda.stream(self._side)

    def column(self, table: Handle, number: int) -> Tensor:
        """Returns a column as a tensor on the table's segment itself, `[num_chunks, chunk_steps, *shape]`.

        The segment must be page-locked, with one address for processor and GPU, as long as anybody reads the tensor.

        Raises:
            TypeError: the column is in the heap or mutable, or torch has no such dtype.
        """
        column: Tensor = from_dlpack(table._native.column(number, _DLPACK_CUDA, self.device.index))
        return column
