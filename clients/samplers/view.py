"""View: items looked at where they lie, without a copy, until they are released."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.clients.batches.arguments import check_count
from shmreplay.clients.batches.decoding import Shown, mask_of, show_item
from shmreplay.clients.batches.native import ItemNumbers, NativeItem
from shmreplay.clients.handles.handle import Handle, raise_with
from shmreplay.columns.item_structure import unflatten_outputs
from shmreplay.columns.signature import Signature
from shmreplay.errors import ShmReplayError

HOST = (1, 0)  # DLPack's number of it, and of the one that there is


class ViewedItem:
    """One item of a view. What it is, as in `Batch`, without the leading axis.

    Attributes:
        key, times_sampled, episode, step, age: int.
        priority, probability: float.
    """

    def __init__(self, view: View, index: int) -> None:
        self._view = view
        self._index = index
        numbers = view._numbers
        self.key = int(numbers.keys[index])
        self.priority = float(numbers.priorities[index])
        self.probability = float(numbers.probabilities[index])
        self.times_sampled = int(numbers.times_sampled[index])
        self.episode = int(numbers.episodes[index])
        self.step = int(numbers.steps[index])
        self.age = int(numbers.ages[index])

    @property
    def insert_number(self) -> int:
        """The how many-th insert of the table it was; neither a reset nor a restore begins anew."""
        return self._native.insert_number

    @property
    def data(self) -> Any:
        """The item's structure with a read-only array a leaf: `[*shape]` without, `[rows, *shape]` with a step axis.

        The rows are those of this item alone: nothing is padded to the longest one. Raises ShmReplayError after the
        release.
        """
        self._view._check_held()
        return self._structured([shown.data for shown in self._shown])

    @property
    def sizes(self) -> Any:
        """In data's structure: as `Batch.sizes`, int32 `[rows, k]` or `[k]` of columns of variable shape, else None."""
        self._view._check_held()
        return self._structured([shown.sizes for shown in self._shown])

    @cached_property
    def _native(self) -> NativeItem:
        return self._view._item(self._index)

    @cached_property
    def _shown(self) -> list[Shown]:
        return show_item(self._native, self._view._signature)

    @property
    def is_view(self) -> Any:
        """In data's structure: True where the array is the arena's memory, False where it is a private copy.

        Raises as `data`. A copy is made of what is in the heap, mutable or per item, where the rows do not lie at one
        stride (they cross into another chunk), where rows are padding, and of what was drawn before the call
        waited for the rate limiter.
        """
        self._view._check_held()
        return self._structured(self._native.is_view)

    @property
    def mask(self) -> Any:
        """In data's structure: bool, True where a row is real: `[rows]`, or `[]` where there is no step axis."""
        self._view._check_held()
        return self._structured(self._masks)

    @cached_property
    def _masks(self) -> list[NDArray[np.bool_]]:
        native = self._native
        return [
            mask_of(mask, shown, 0 if squeezed else 1)
            for mask, shown, squeezed in zip(native.masks, self._shown, native.squeezed, strict=True)
        ]

    def _structured(self, values: Sequence[Any]) -> Any:
        return self._view._structured(self._native.names, values)

    def __repr__(self) -> str:
        return f"<item {self.key} of {self._view!r}>"


class Layout(NamedTuple):
    """How the outputs of a view's items lie in a batch; the last three have an entry for each."""

    names: bytes
    squeezed: Sequence[bool]
    columns: Sequence[int]
    rows: Sequence[int]  # at least, where there is a step axis


class View:
    """n items where they lie in shared memory, in the order drawn. A context manager; see `TableHandle.view`.

    Their chunks are leased to this view until it is released: at the end of a `with`, by `release()`, when it is
    garbage or when the client is closed. In a forked child it is the parent's: to release it there does nothing.

    Attributes:
        keys: int64 `[n]`, for `update_priorities`, `delete` and `get`.
        priorities, probabilities, times_sampled, table_size, episodes, steps, ages: `[n]`, as of `Batch`.
        is_contiguous: whether every array of `data` is the shared memory itself.
    """

    def __init__(
        self, native: _core.View | None, numbers: ItemNumbers, copies: Sequence[NativeItem], signature: Signature
    ) -> None:
        self._native = native  # None: the items are all copies
        self._numbers = numbers
        self._copies = copies
        self._signature = signature
        self._is_released = False
        self.is_contiguous = native is not None and native.is_contiguous
        self.keys = numbers.keys
        self.priorities = numbers.priorities
        self.probabilities = numbers.probabilities
        self.times_sampled = numbers.times_sampled
        self.table_size = numbers.table_size
        self.episodes = numbers.episodes
        self.steps = numbers.steps
        self.ages = numbers.ages

    @property
    def data(self) -> Any:
        """All items together, read-only, in the structure and of the shapes of `Batch.data`: `[n, ...]`, `[n, L, ...]`.

        The shared memory itself, strided, where the items lie at one stride: one after the other in a chunk, or in
        chunks at equal distances. A vector writer's unrolls of the same steps lie so, unless an episode ended in
        between; see docs/windows.md. Otherwise a copy, made when it is first read; `sample` makes one faster. Raises
        ShmReplayError after the release.
        """
        self._check_held()
        return self._structured(self._layout.names, [read_only(output.data) for output in self._outputs])

    @property
    def mask(self) -> Any:
        """In data's structure: as `Batch.mask`, bool `[n]`, or `[n, L]` where there is a step axis."""
        self._check_held()
        return self._structured(self._layout.names, [output.has for output in self._outputs])

    def for_dlpack(self, device: tuple[int, int] = HOST) -> Any:
        """In data's structure: what `torch.from_dlpack` and others of that name take, without a copy.

        What they make of it keeps the rows leased until it is gone, also after the release: so do not keep it long.

        Args:
            device: what kind of memory it is to be called, as DLPack numbers it, and of which device: `(1, 0)`, the
                host's; `(3, 0)`, the host's that the caller has page-locked.

        Raises:
            ValueError: an array is none of the shared memory, and `device` is not the host's.
            TypeError: DLPack has no such dtype.
            ShmReplayError: the view was released.
        """
        self._check_held()
        exported = [self._exported(number, device) for number in range(len(self._layout.columns))]
        return self._structured(self._layout.names, exported)

    @property
    def is_released(self) -> bool:
        """Whether the chunks have been given back."""
        return self._is_released

    def release(self) -> None:
        """Gives the chunks back. Idempotent.

        Arrays that are kept stay readable and show whatever the memory holds by then: other steps, or half of them.
        """
        self._is_released = True
        if self._native is not None:
            self._native.release()

    close = release

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> ViewedItem:
        return ViewedItem(self, range(len(self))[operator.index(index)])

    def __iter__(self) -> Iterator[ViewedItem]:
        return (ViewedItem(self, index) for index in range(len(self)))

    def __enter__(self) -> View:
        self._check_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @cached_property
    def _layout(self) -> Layout:
        if self._native is not None and (structure := self._native.structure()) is not None:
            return Layout(*structure, self._native.rows())
        first = self._item(0)
        return Layout(first.names, first.squeezed, first.columns, [0] * len(first.columns))

    @cached_property
    def _outputs(self) -> list[Shown]:
        return [self._output(number) for number in range(len(self._layout.columns))]

    def _output(self, number: int) -> Shown:
        num_axes, rows = (1, 0) if self._layout.squeezed[number] else (2, self._layout.rows[number])
        strided = None if self._native is None else self._native.strided(number)
        if strided is not None:
            return Shown(strided, np.ones(strided.shape[:num_axes], np.bool_))
        items = list(self)
        data = [item._shown[number].data for item in items]
        return Shown(
            stacked(data, rows) if isinstance(data[0], np.ndarray) else data,
            stacked([item._masks[number] for item in items], rows),
        )

    def _exported(self, number: int, device: tuple[int, int]) -> Any:
        exported = None if self._native is None else self._native.exported(number, *device)
        if exported is not None:
            return exported
        if device != HOST:
            raise ValueError(
                f"{self!r}: an output is a copy, and no memory of device {device}; see is_contiguous, and take its data"
            )
        return self._outputs[number].data  # not read-only: NumPy before 2.1 exports nothing that is

    def _structured(self, names: bytes, values: Sequence[Any]) -> Any:
        return unflatten_outputs(names, values) if names else self._signature.unflatten(values)

    @property
    def _num_copies(self) -> int:
        """How many items, the first ones, are copies as a whole."""
        return len(self) if self._native is None else self._native.num_copies

    @property
    def _smallest_probability(self) -> float:
        """The smallest probability of the table's items; 0 if it is unknown, or all are drawn alike."""
        return 0.0 if self._native is None else self._native.smallest_probability

    def _row_numbers(self, output: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Which rows of the arena an output shows, `[n]` or `[n, L]` as a batch is padded: chunk * chunk_steps + row,
        -1 where there is none; and where there is a real one. Of items that are copies there is none."""
        self._check_held()
        assert self._native is not None  # the caller has looked at _num_copies
        numbers, is_real = self._native.row_numbers(output)
        return numbers, is_real

    def _item(self, index: int) -> NativeItem:
        if self._native is None:
            return self._copies[index]
        self._check_held()
        return NativeItem(*self._native.item(index))

    def _check_held(self) -> None:
        if self._is_released:
            raise ShmReplayError(f"{self!r} was released; copy what you keep before that, or take another view")

    def __repr__(self) -> str:
        return f"<View of {len(self)} items of table {self._signature.table_name!r}>"


def read_only(data: Any) -> Any:
    """The same array, or list of steps, that nobody writes to."""
    if isinstance(data, np.ndarray) and data.flags.writeable:
        data = data.view()
        data.flags.writeable = False
    return data


def stacked(arrays: Sequence[NDArray[Any]], rows: int) -> NDArray[Any]:
    """The arrays as one, each padded with 0 to the longest of its axes; the first one to `rows` at least."""
    shape = np.max([array.shape for array in arrays], axis=0).astype(int).tolist()
    if rows > 0:
        shape[0] = max(shape[0], rows)
    joined = np.zeros((len(arrays), *shape), arrays[0].dtype)
    for number, array in enumerate(arrays):
        place: tuple[int | slice, ...] = (number, *(slice(size) for size in array.shape))
        joined[place] = array
    return joined


def open_view(table: Handle, n: int, timeout_s: float | None) -> View:
    """See `TableHandle.view`."""
    n = check_count(table._where, "n", n)
    _check_names(table, n)
    options = _core.SampleOptions(n, n)
    while True:
        table._check_open()
        native = _core.View(table._native)
        status, drawn, raised = native.draw(options, table._random.uniforms(n), timeout_s)
        numbers = ItemNumbers(*(array[:drawn] for array in native.numbers()))
        if status == 0:
            view = View(native, numbers, [], table._sig)
            table._client._add_dependent(view)
            return view
        copies = [NativeItem(*native.item(index)).copied() for index in range(drawn)]
        native.release()
        batch = View(None, numbers, copies, table._sig) if copies else None
        if raised is not None:
            raise_with(raised, batch=batch)
        if copies or not table._recover(status):
            table._raise_status(status, "view", timeout_s, batch=batch, asked=n)


def most_items(table: Handle) -> int:
    """How many items a view of the table may have: as many as a lease can name the chunks of."""
    return max(1, _core.VIEW_CHUNKS // _chunks_of_an_item(table))


def _chunks_of_an_item(table: Handle) -> int:
    chunk_steps = int(table._arena.stats()["chunk_steps"])
    return 1 + (table._spec.item_steps + chunk_steps - 2) // chunk_steps


def _check_names(table: Handle, n: int) -> None:
    if n > (limit := most_items(table)):
        raise ValueError(
            f"{table._where}: n is {n}; a view names the chunks of its items, at most {_core.VIEW_CHUNKS}, and an item "
            f"of this table may touch {_chunks_of_an_item(table)}: use n={limit} or less, several views, or sample()"
        )
