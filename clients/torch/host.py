"""HostTransport: batches of `table.sampler` as tensors that share the arrays' memory, or that torch copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.handles.handle import raise_with
from shmreplay.clients.samplers.sampler import Draw, Source
from shmreplay.clients.torch.batch import TorchBatch
from shmreplay.clients.torch.parts import BatchParts, Form
from shmreplay.clients.torch.tensors import as_tensor
from shmreplay.clients.torch.transport import NOT_PINNED, Pin, Tally


def num_bytes(batch: Batch) -> int:
    """Bytes of the rows that a batch shows."""
    return sum(array.nbytes for array in batch._native.data if isinstance(array, np.ndarray))


class HostTransport:
    """On the CPU, a batch's tensors share the memory of its arrays, which are used again when nobody refers to them.

    To another device, the thread that takes the batch copies them, as any tensor, on its current stream, and waits for
    the copy: `data` at once, all else when it is read.
    """

    pin: Pin = NOT_PINNED

    def __init__(self, source: Source, prefetch: int, device: torch.device, why: str) -> None:
        self._device = device
        self._draw = Draw(source, prefetch)
        self.why = why
        self.name = "none" if device.type == "cpu" else "pageable"
        self.tally = Tally()

    def __call__(self, timeout_s: float | None, drawn: list[Any]) -> HostDelivery:
        return HostDelivery(self._draw(timeout_s, drawn), self._device, self.tally)

    def anew(self) -> HostTransport:
        """Begins again with new arrays and counts, and returns itself."""
        self._draw, self.tally = self._draw.anew(), Tally()
        return self

    def close(self) -> None:
        """Frees the arrays that nobody else refers to."""
        self._draw.close()


@dataclass(frozen=True)
class HostDelivery:
    """A batch in host memory."""

    batch: Batch
    device: torch.device
    tally: Tally

    def take(self) -> TorchBatch:
        """See `Delivery`."""
        copied = num_bytes(self.batch)
        self.tally.add(batches=1, gathered_bytes=copied, sent_bytes=0 if self.device.type == "cpu" else copied)
        try:
            return TorchBatch(BatchParts(self.batch), Form.of(self.batch), self._convert)
        except BaseException as error:  # noqa: BLE001  # raised again, with what may be the only copy
            raise_with(error, batch=self.batch)

    @property
    def _convert(self) -> Callable[[Any], Tensor]:
        return as_tensor if self.device.type == "cpu" else partial(_copied, self.device)


def _copied(device: torch.device, part: Any) -> Tensor:
    return as_tensor(part).to(device)
