"""StagingTransport: the core writes batches into page-locked memory, and the GPU copies them from there."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
from torch import Tensor

from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.errors import CudaError, CudaUnavailable
from shmreplay.clients.samplers.sampler import Source
from shmreplay.clients.torch.batch import TorchBatch, check_dtypes
from shmreplay.clients.torch.device_tensors import DeviceTensors
from shmreplay.clients.torch.host import HostDelivery, num_bytes
from shmreplay.clients.torch.parts import BatchParts, Form, TorchParts
from shmreplay.clients.torch.room import PinnedRoom, Place, space_for
from shmreplay.clients.torch.transport import NOT_PINNED, Delivery, Pin, Tally
from shmreplay.columns.item_structure import unflatten_outputs
from shmreplay.errors import ShmReplayError

logger = logging.getLogger("shmreplay")

LOOK_S = 1.0  # how often a wait for the GPU checks whether the sampler was closed


class StagingTransport:
    """Copies each batch once, on a side stream. Rows are leased only while the core copies them.

    The learner's stream waits for the copy; the learner itself does not. Columns that come in new arrays (those in the
    heap), masks and numbers are placed after the others, and go in the same transfer.
    """

    pin: Pin = NOT_PINNED

    def __init__(
        self,
        source: Source,
        prefetch: int,
        gpu: tuple[Device, DeviceTensors],
        why: str,
        is_asked_for: bool,
    ) -> None:
        """`is_asked_for`: if there is no page-locked memory, a call fails instead of using a slower way."""
        self._source = source
        self._device, self._tensors = gpu
        weakref.finalize(self, self._device.close).atexit = False  # for a sampler that is collected as garbage
        self._rooms = Rooms(prefetch + 1)
        self._build: Callable[[Sequence[Any]], Any] = tuple  # the structure of `out`
        self._why = why
        self._is_asked_for = is_asked_for
        self._refusal: str | None = None  # why the driver gives no page-locked memory
        self.tally = Tally()

    @property
    def name(self) -> str:
        """See `Transport`."""
        return "staging" if self._refusal is None else "pageable"

    @property
    def why(self) -> str:
        """See `Transport`."""
        return self._refusal or self._why

    def __call__(self, timeout_s: float | None, drawn: list[Any]) -> Delivery:
        room = self._rooms.take()
        try:
            batch, room = self._sample(timeout_s, room, drawn)
        except BaseException:
            # The batch that the error carries may be in the room. Then the room is not used again.
            if room is not None and not drawn:
                self._rooms.put(room)
            raise
        return self._send(batch, room)

    def _sample(
        self, timeout_s: float | None, room: PinnedRoom | None, drawn: list[Any]
    ) -> tuple[Batch, PinnedRoom | None]:
        """Draws a batch. Returns it with the room that it is in, or None if the room was too small."""
        sample = partial(self._source.sample, timeout_s)
        if room is None or not self._source.takes_out:
            return sample(None, drawn), room
        wait_for(room, self._source)
        try:
            return sample(self._build(room.arrays), drawn), room
        except ValueError:
            if drawn:
                raise
            # The table's longest item has outgrown the room.
            self._rooms.forget()
            return sample(None, drawn), None

    def _send(self, batch: Batch, room: PinnedRoom | None) -> Delivery:
        parts, form = BatchParts(batch), Form.of(batch)
        check_dtypes(parts, form)
        if room is None or not room.has_space_for(parts):
            room = self._room_like(batch, parts)
        if room is None:
            return HostDelivery(batch, self._tensors.device, self.tally)
        places, sent = room.take_in(parts)
        memory = self._tensors.empty(sent)
        room.send(self._device, memory, sent, self._tensors.side_stream)
        self.tally.add(gathered_bytes=num_bytes(batch), sent_bytes=sent)
        delivery = StagedDelivery(self, room, memory, places, form)
        self._rooms.put(room)
        return delivery

    def _room_like(self, batch: Batch, parts: TorchParts) -> PinnedRoom | None:
        """Makes a room for batches like this one; None if the driver gives no page-locked memory."""
        if self._refusal is not None:
            return None
        names, data = batch._native.names, batch._native.data
        self._build = partial(unflatten_outputs, names) if names else batch._signature.unflatten
        places = [array if isinstance(array, np.ndarray) else None for array in data]
        try:
            # Twice the space, because the next batch may have larger rows in columns of variable shape.
            return PinnedRoom(self._device, places, 2 * space_for(parts, None))
        except CudaError as error:
            if self._is_asked_for:
                raise
            self._refusal = f"the driver has no page-locked memory to give: {error}"
            logger.warning("%s: batches go to the GPU by plain copies: %s", self._source.where, self._refusal)
            return None

    def deliver(self, delivery: StagedDelivery) -> TorchBatch:
        """See `Delivery.take`."""
        delivery.room.make_wait(self._tensors.current_stream)
        self._tensors.hand_over(delivery.memory)
        self.tally.add(batches=1)
        return TorchBatch(delivery.places, delivery.form, partial(unpack, delivery.memory))

    def anew(self) -> NoReturn:
        """Raises CudaUnavailable."""
        raise CudaUnavailable(
            "this process was forked from one that uses CUDA, which does not outlive a fork; make the sampler in a "
            "process started by 'spawn'"
        )

    def close(self) -> None:
        """Frees the page-locked memory."""
        self._rooms.forget()
        self._device.close()


@dataclass(frozen=True)
class StagedDelivery:
    """A batch that the GPU has been told to copy. Its memory belongs to the side stream until it is taken."""

    transport: StagingTransport
    room: PinnedRoom
    memory: Tensor
    places: TorchParts
    form: Form

    def take(self) -> TorchBatch:
        """See `Delivery`."""
        return self.transport.deliver(self)


def unpack(memory: Tensor, place: Place | Tensor) -> Tensor:
    """Returns the tensor at a place of the device's memory; a tensor is returned as it is."""
    return place if isinstance(place, Tensor) else place.tensor(memory)


def wait_for(room: PinnedRoom, source: Source) -> None:
    """Waits until the GPU has done the work that it was given for the room.

    Raises:
        CudaError: the GPU failed.
        ShmReplayError: the sampler was closed meanwhile.
    """
    while not room.wait(LOOK_S):
        if source.stop.is_set:
            raise ShmReplayError(f"{source.where}: the sampler was closed while it waited for the GPU")


class Rooms:
    """The unused rooms of one transport, the one unused for longest first. Safe to use from threads."""

    def __init__(self, num_kept: int) -> None:
        """`num_kept` rooms take turns, so that a room is not written to before its last batch was taken."""
        self._num_kept = num_kept
        self._free = deque[PinnedRoom]()
        self._lock = threading.Lock()

    def take(self) -> PinnedRoom | None:
        """Takes an unused room; None while there are fewer than `num_kept`: the caller then makes a new one."""
        with self._lock:
            return self._free.popleft() if len(self._free) >= self._num_kept else None

    def put(self, room: PinnedRoom) -> None:
        """Makes the room unused again, even if copies out of it still run."""
        with self._lock:
            self._free.append(room)

    def forget(self) -> None:
        """Frees all unused rooms, so that new ones are made."""
        with self._lock:
            while self._free:
                self._free.pop().close()
