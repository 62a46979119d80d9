"""Rung: one way of batches from the table to their device, and what is counted of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from shmreplay.clients.samplers.sampler import Draws
from shmreplay.clients.torch.batch import TorchBatch


class Delivery(Protocol):
    """A batch that may still be on its way. The thread that makes it is another one than the one that takes it."""

    def take(self) -> TorchBatch:
        """The batch. What the caller's current stream is given from now on sees it whole; the caller waits for nothing
        that is on its way already."""


class Pin(NamedTuple):
    """Whether the data segment is page-locked: as `TransferInfo` says it."""

    state: str
    reason: str


NOT_PINNED = Pin("none", "")


class Rung(Draws[Delivery], Protocol):
    """Draws batches and sends them off.

    Attributes:
        tally: what it has moved.
    """

    tally: Tally

    @property
    def name(self) -> str:
        """As `TransferInfo.transfer`: of the newest batch, or else of the next one."""

    @property
    def why(self) -> str:
        """Why it is the one."""

    @property
    def pin(self) -> Pin:
        """Of the data segment."""


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
