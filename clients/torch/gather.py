"""GatherTransport: the GPU itself reads rows from the page-locked segment. The processor sends the rows' numbers."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shmreplay import _core
from shmreplay.base.dtypes import is_added
from shmreplay.clients.batches.arrangement import Arrangement, ShownOutput
from shmreplay.clients.batches.native import NativeOutput
from shmreplay.clients.batches.sample_options import SampleOptions
from shmreplay.clients.cuda.device import Device
from shmreplay.clients.cuda.errors import CudaError
from shmreplay.clients.cuda.page_locks import PageHold, hold_pages
from shmreplay.clients.samplers.ahead import end_all
from shmreplay.clients.samplers.sampler import Source
from shmreplay.clients.samplers.view import View, most_items, open_view
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.torch.batch import TorchBatch
from shmreplay.clients.torch.columns import RowNumbers, SegmentColumns
from shmreplay.clients.torch.copies import copied_parts, form_of, joined, num_real, numbers_of
from shmreplay.clients.torch.device_tensors import DeviceTensors
from shmreplay.clients.torch.parts import Form, TorchParts
from shmreplay.clients.torch.room import PinnedRoom, space_for
from shmreplay.clients.torch.staging import LOOK_S, Rooms, StagingTransport, unpack, wait_for
from shmreplay.clients.torch.transport import NOT_PINNED, Delivery, Pin
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import ShmReplayError

LINE_BYTES = 128  # the least that a GPU reads of the host's memory at once
OPTIONS = ("columns", "pad_to", "time_major")  # the options of `sample` that also work with views
FIRST_BYTES = 2**16  # page-locked memory for the numbers of rows, at first; a larger batch gets more
LAST_READS_S = 10.0  # how long `close` waits for the GPU's reads; a GPU that takes longer hangs

# Registered after the function that undoes page locks, so it runs before that.
atexit.register(end_all)


def why_not_gather(source: Source, options: SampleOptions) -> str | None:
    """Why the GPU cannot gather batches of this source, whatever its items are; None if nothing is known against it."""
    if len(source.handles) != 1 or not source.takes_out:
        return "its items lie in several arenas"
    if asked := [name for name in options.asked if name not in OPTIONS]:
        return f"only sample() has the options {', '.join(asked)}"
    return None


class GatherTransport:
    """Draws with a view, sends the numbers of its rows, has the GPU read the rows, and releases the view afterwards.

    So the lease of the rows outlasts every read, and no batch is torn. A batch goes by staging instead while the
    segment is not page-locked, and if it would have to wait for the rate limiter, because nobody may wait for that
    while holding a lease.
    """

    def __init__(
        self,
        source: Source,
        options: SampleOptions,
        gpu: tuple[Device, DeviceTensors],
        staging: StagingTransport,
        is_asked_for: bool,
    ) -> None:
        self._source = source
        self._handle = cast(TableHandle, source.handles[0])
        self._options = options
        self._batch_size = options.n
        self._device, self._tensors = gpu
        self._staging = staging
        self._is_asked_for = is_asked_for
        self._hold: PageHold | None = None  # made when the items are known and can be gathered
        self._arrangement: Arrangement | None = None  # the last one examined
        self._reason_against: str | None = None  # why its items are not gathered
        self._lock = threading.Lock()  # guards these three
        self._columns = SegmentColumns(self._handle, self._tensors)
        self._rooms = Rooms(1)
        self._unfinished: list[PinnedRoom] = []  # rooms that the GPU may still use, also those of batches that failed
        # Held while a thread gives the GPU work, and while another one closes. An RLock, because a signal handler may
        # call close() in the thread that holds it.
        self._submission_lock, self._is_closed = threading.RLock(), False
        self.tally = staging.tally

    # --- gather or staging ---------------------------------------------------------------------------------------

    @property
    def pin(self) -> Pin:
        """See `Transport`."""
        return NOT_PINNED if self._hold is None else Pin(self._hold.state, self._hold.reason)

    @property
    def _is_ready(self) -> bool:
        return self._reason_against is None and self.pin.state == "registered"

    @property
    def name(self) -> str:
        """See `Transport`."""
        return "gather" if self._is_ready else self._staging.name

    @property
    def why(self) -> str:
        """See `Transport`."""
        if self._is_ready:
            return "the data segment is page-locked, and the GPU reads rows directly from it"
        if self._staging.name != "staging":
            return self._staging.why
        if self._reason_against is not None:
            return self._reason_against
        if self._hold is None:
            return "no batch was drawn yet"
        if self._hold.state == "refused":
            return f"the data segment cannot be page-locked: {self._hold.reason}"
        return f"the data segment is not page-locked yet ({self._hold.progress:.0%})"

    def __call__(self, timeout_s: float | None, drawn: list[Any]) -> Delivery:
        arrangement = self._handle._arrange(
            "sample", self._options.columns, self._options.pad_to, self._options.time_major, timeout_s
        )
        with self._lock:
            if arrangement is not self._arrangement:
                self._look_at(arrangement)
        if self._is_asked_for:
            self._wait_for_page_lock()
        if self._is_ready and self._handle.can_sample(self._batch_size):
            return self._gather(arrangement, timeout_s, drawn)
        return self._staging(timeout_s, drawn)

    def _look_at(self, arrangement: Arrangement) -> None:
        """Starts to page-lock the segment, on a thread, if the items can be gathered."""
        self._arrangement, self._reason_against = arrangement, self._why_not_these_items(arrangement)
        if self._reason_against is None and self._hold is None:
            self._hold = hold_pages(self._device, self._handle._arena)

    def _wait_for_page_lock(self) -> None:
        """Waits for the page lock. Raises ShmReplayError if it is refused or impossible, or the sampler is closed."""
        while self._hold is not None and not self._hold.wait(LOOK_S) and not self._source.stop.is_set:
            pass
        if not self._is_ready:
            raise ShmReplayError(f"{self._source.where}: transfer is 'gather', but {self.why}; leave transfer out")

    def _why_not_these_items(self, arrangement: Arrangement) -> str | None:
        outputs = arrangement.outputs
        if other := [output.path for output in outputs if not _lies_plain(output.spec)]:
            return f"{', '.join(map(repr, other))} cannot be read directly, row by row"
        if self._source.consumes and self._batch_size > most_items(self._handle):
            return f"a view of consumed items has at most {most_items(self._handle)}"
        large = sum(output.spec.row_bytes for output in outputs if output.spec.row_bytes >= LINE_BYTES)
        if not self._is_asked_for and 2 * large < sum(output.spec.row_bytes for output in outputs):
            return f"rows of less than {LINE_BYTES} bytes are copied faster by the processor"
        try:
            self._rooms.put(PinnedRoom(self._device, [], FIRST_BYTES))
        except CudaError as error:
            return f"the driver has no page-locked memory to give: {error}"
        return None

    # --- one batch -----------------------------------------------------------------------------------------------

    def _gather(self, arrangement: Arrangement, timeout_s: float | None, drawn: list[Any]) -> Gathered:
        with ExitStack() as leases:  # they end when the GPU has read the rows, or after an error
            views: list[View] = []
            copy = partial(self._copied_in_vain, views, arrangement)
            try:
                for n in self._view_sizes():
                    view = open_view(self._handle, n, timeout_s, views)
                    views.append(view)
                    leases.enter_context(view)
                return self._read(views, arrangement)
            except BaseException:
                _core.make_surely(copy, drawn)
                raise

    def _view_sizes(self) -> list[int]:
        """The numbers of items of the views for a batch: as few views as can name the chunks of all its items."""
        num_views = -(-self._batch_size // most_items(self._handle))
        return [(self._batch_size + i) // num_views for i in range(num_views)]

    def _copied_in_vain(self, views: Sequence[View], arrangement: Arrangement) -> TorchBatch | None:
        """A batch in host memory, for the error of a call that has drawn these. None: nothing is lost without it."""
        is_only_copy = self._source.consumes or any(view._num_copies == len(view) for view in views)
        return self._copied(views, arrangement) if views and is_only_copy else None

    def _copied(self, views: Sequence[View], arrangement: Arrangement) -> TorchBatch:
        return TorchBatch(copied_parts(views, arrangement, self._longest()), form_of(views, arrangement))

    def _longest(self) -> list[NativeOutput]:
        """The outputs of the table's items, with the rows of the longest item. An item was inserted by now."""
        status, _, outputs = self._handle._native.structure(False, False, None)
        if status != 0 or outputs is None:
            self._handle._raise_status(status, "view", None)
        return list(outputs)

    def _read(self, views: Sequence[View], arrangement: Arrangement) -> Gathered:
        """Has the GPU read the views' items into its memory. Returns when all are read."""
        outputs = arrangement.outputs
        if any(view._num_copies > 0 for view in views):  # a view had to wait for the rate limiter nevertheless
            parts, rows = copied_parts(views, arrangement, self._longest()), None
        else:
            rows = RowLists(views, outputs, arrangement.time_major)
            if rows.are_too_many:
                raise arrangement.too_long(self._longest(), None)
            parts = TorchParts(rows.numbers, rows.lengths, rows.masks, [None] * len(outputs), numbers_of(views))
        room = self._room_for(parts)
        places, sent = room.take_in(parts)
        memory = self._tensors.empty(sent)
        data, read = places.data, 0
        with self._submission_lock:
            if self._is_closed:
                raise ShmReplayError(f"{self._source.where}: this sampler is closed; make another one")
            room.send(self._device, memory, sent, self._tensors.side_stream)
            self._unfinished.append(room)
            if rows is not None:
                try:
                    data = self._gathered(rows, outputs, memory, places)
                finally:  # even after an error, the GPU does the work that it was given before
                    room.mark(self._tensors.side_stream)
                read = sum(tensor.nbytes for tensor in data)
        wait_for(room, self._source)
        with self._submission_lock:
            self._unfinished = [other for other in self._unfinished if other is not room]
        self._rooms.put(room)
        self.tally.add(sent_bytes=sent, read_bytes=read)
        moved = TorchParts(data, places.lengths, places.masks, places.sizes, places.numbers)
        return Gathered(self, memory, moved, form_of(views, arrangement))

    def _gathered(
        self, rows: RowLists, outputs: Sequence[ShownOutput], memory: Tensor, places: TorchParts
    ) -> list[Tensor]:
        """Returns the outputs' rows. The side stream reads them after it has copied the row numbers."""
        with self._tensors.on_side_stream():
            numbers = rows.on_device([place.tensor(memory) for place in places.data], self._chunk_steps)
            return [self._columns.gather(output, numbers[i]) for output, i in zip(outputs, rows.of, strict=True)]

    @property
    def _chunk_steps(self) -> int:
        return int(self._handle._arena.stats()["chunk_steps"])

    def _room_for(self, parts: TorchParts) -> PinnedRoom:
        with self._submission_lock:
            self._unfinished = [room for room in self._unfinished if not room.wait(0)]
        room = self._rooms.take()
        if room is None or not room.has_space_for(parts):
            room = PinnedRoom(self._device, [], 2 * space_for(parts, None))
        return room

    def deliver(self, gathered: Gathered) -> TorchBatch:
        """See `Delivery.take`. All data has arrived; it only must stay until the caller's stream has used it."""
        for tensor in (gathered.memory, *gathered.parts.data):
            if isinstance(tensor, Tensor):
                self._tensors.hand_over(tensor)
        self.tally.add(batches=1)
        return TorchBatch(gathered.parts, gathered.form, partial(unpack, gathered.memory))

    # --- the end -------------------------------------------------------------------------------------------------

    def anew(self) -> NoReturn:
        """Raises CudaUnavailable."""
        self._staging.anew()

    def close(self) -> None:
        """Gives up the page lock once the GPU's reads are done, and frees all else."""
        with self._submission_lock:
            self._is_closed = True
        for room in list(self._unfinished):
            with suppress(CudaError):  # a GPU that failed reads no more
                room.wait(LAST_READS_S)
        if self._hold is not None:
            self._hold.close()
        self._rooms.forget()
        self._staging.close()


@dataclass(frozen=True)
class Gathered:
    """A batch in the GPU's memory. The memory belongs to the side stream until the batch is taken."""

    transport: GatherTransport
    memory: Tensor
    parts: TorchParts
    form: Form

    def take(self) -> TorchBatch:
        """See `Delivery`."""
        return self.transport.deliver(self)


class RowLists:
    """Which rows of the segment the outputs of some views show, padded like a batch. Equal outputs share a list.

    Attributes:
        numbers: the lists, int64 `[B]`, `[B, L]` or `[L, B]` each; -1 where there is no row.
        of: for each output, the number of its list.
        masks: for each output, bool; None: all rows are real.
        lengths: for each output, int32 `[B]`.
        are_too_many: whether an item has more rows than `pad_to` allows.
    """

    def __init__(self, views: Sequence[View], outputs: Sequence[ShownOutput], time_major: bool) -> None:
        self.numbers: list[NDArray[np.int64]] = []
        self.of: list[int] = []
        self.masks: list[NDArray[np.bool_] | None] = []
        self.lengths: list[NDArray[np.int32]] = []
        self.are_too_many = False
        for output in outputs:
            found = [view._row_numbers(output.number) for view in views]
            rows = 0 if output.is_squeezed else output.rows or 1
            numbers, is_real = (
                joined([pair[0] for pair in found], rows, -1),
                joined([pair[1] for pair in found], rows, 0),
            )
            self.are_too_many |= output.rows is not None and numbers.shape[1] > output.rows
            self.lengths.append(num_real(is_real))
            if time_major and not output.is_squeezed:
                numbers, is_real = np.ascontiguousarray(numbers.T), np.ascontiguousarray(is_real.T)
            self.of.append(self._place(numbers))
            self.masks.append(None if is_real.all() else is_real)

    def _place(self, numbers: NDArray[np.int64]) -> int:
        for i, known in enumerate(self.numbers):
            if np.array_equal(known, numbers):
                return i
        self.numbers.append(numbers)
        return len(self.numbers) - 1

    def on_device(self, numbers: Sequence[Tensor], chunk_steps: int) -> list[RowNumbers]:
        """Returns the lists as row numbers on the device, made of their copies in its memory, `numbers`."""
        missing = [bool((own < 0).any()) for own in self.numbers]
        return [RowNumbers.of(own, chunk_steps, lacks) for own, lacks in zip(numbers, missing, strict=True)]


def _lies_plain(spec: ArraySpec) -> bool:
    """Whether rows in the segment are the values themselves, of a dtype that DLPack and torch have."""
    return not (spec.in_heap or spec.mutable) and (not is_added(spec.dtype) or spec.dtype.name == "bfloat16")
