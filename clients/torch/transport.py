"""Transport: one way of batches from the table to their device, with its counters."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from shmreplay.clients.samplers.sampler import Draws
from shmreplay.clients.torch.batch import TorchBatch


class Delivery(Protocol):
    """A batch that may still be on its way. One thread makes it, another one takes it."""

    def take(self) -> TorchBatch:
        """Returns the batch. All later work of the caller's current stream sees it complete.

        The caller itself does not wait for copies that are under way.
        """


class Pin(NamedTuple):
    """Whether the data segment is page-locked, as in `TransferInfo.pin_state` and `pin_reason`."""

    state: str
    reason: str


NOT_PINNED = Pin("none", "")


class Transport(Draws[Delivery], Protocol):
    """Draws batches and sends them to the device.

    Attributes:
        tally: counts the batches and bytes that it moved.
    """

    tally: Tally

    @property
    def name(self) -> str:
        """As `TransferInfo.transfer`, for the newest batch; before the first batch, for the next one."""

    @property
    def why(self) -> str:
        """Why batches take this way."""

    @property
    def pin(self) -> Pin:
        """The page lock of the data segment."""


@dataclass
class Tally:
    """Batches and bytes of one sampler, counted by all its threads: see `TransferInfo`."""

    batches: int = 0
    gathered_bytes: int = 0
    sent_bytes: int = 0
    read_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, batches: int = 0, gathered_bytes: int = 0, sent_bytes: int = 0, read_bytes: int = 0) -> None:
        """Counts what was done."""
        with self._lock:
            self.batches += batches
            self.gathered_bytes += gathered_bytes
            self.sent_bytes += sent_bytes
            self.read_bytes += read_bytes
