"""A GPU's tensors without a GPU.

Beside a fake libcuda (`tests.support.fake_cuda`) every way to the device can be gone.
"""

import contextlib

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from shmreplay.clients.handles.handle import Handle
from tests.support.fake_cuda import library

GARBAGE = 0xEE  # what is in memory that nothing was copied to yet


class HostTensors:
    """In place of `DeviceTensors`: memory of the host, which the fake driver takes for the GPU's."""

    def __init__(self, device: torch.device) -> None:
        self.device = torch.device("cpu", device.index or 0)
        self.side_stream = 7
        self.current_stream = 0
        # A copy that lags finds its place: a GPU's memory is not given away before its stream has come by.
        self._made: list[Tensor] = []

    def empty(self, num_bytes: int) -> Tensor:
        self._made.append(torch.full((num_bytes,), GARBAGE, dtype=torch.uint8))
        return self._made[-1]

    def hand_over(self, tensor: Tensor) -> None:
        pass

    def on_side_stream(self) -> contextlib.AbstractContextManager[object]:
        library().run()  # what the host does at once, a stream does behind what it was given before
        return contextlib.nullcontext()

    def column(self, table: Handle, number: int) -> Tensor:
        column: Tensor = from_dlpack(table._native.column(number))
        return column
