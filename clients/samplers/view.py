"""View: items read directly in shared memory, without a copy, until they are released."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.base.cached_property import cached_property
from shmreplay.clients.batches.arguments import check_count
from shmreplay.clients.batches.decoding import Shown, mask_of, show_item
from shmreplay.clients.batches.native import ItemNumbers, NativeItem
from shmreplay.clients.batches.structured import Structured, refuse_part
from shmreplay.clients.handles.handle import Handle
from shmreplay.clients.handles.unattached import refuse_pickle
from shmreplay.columns.item_structure import node_of, unflatten_outputs
from shmreplay.columns.signature import Signature
from shmreplay.columns.structure import Node
from shmreplay.errors import ShmReplayError

HOST = (1, 0)  # DLPack's numbers for host memory: kind of device, and number of the device


class ViewedItem(Structured):
    """One item of a view. Its attributes are those of `Batch`, without the leading axis.

    Attributes:
        key, times_sampled, episode, step, age: int.
        priority, probability: float.
    """

    _called = "item"

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
        """Number of the item's insert, counted over the table's life; resets and restores go on counting."""
        return self._native.insert_number

    @property
    def data(self) -> Any:
        """The item's structure with one read-only array for each leaf.

        `[rows, *shape]`, or `[*shape]` without a step axis. The rows are those of this item, not padded to the longest
        one. Raises ShmReplayError after the release.
        """
        self._view._check_held()
        return self._structured([shown.data for shown in self._shown])

    @property
    def sizes(self) -> Any:
        """In the structure of `data`: as `Batch.sizes`, int32 `[rows, k]`, or `[k]` without a step axis."""
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
        """In the structure of `data`: True where the array is the arena's memory, False where it is a private copy.

        Raises as `data`. These are copied: columns in the heap, mutable or per item; rows that cross into another
        chunk, so that they do not lie at one stride; rows with padding; and items that were drawn before the call
        waited for the rate limiter.
        """
        self._view._check_held()
        return self._structured(self._native.is_view)

    @property
    def mask(self) -> Any:
        """In the structure of `data`: bool, True where a row is real: `[rows]`, or `[]` without a step axis."""
        self._view._check_held()
        return self._structured(self._masks)

    @cached_property
    def _masks(self) -> list[NDArray[np.bool_]]:
        native = self._native
        return [
            mask_of(mask, shown, 0 if squeezed else 1)
            for mask, shown, squeezed in zip(native.masks, self._shown, native.squeezed, strict=True)
        ]

    @property
    def _root(self) -> Node:
        return self._view._root

    def _structured(self, values: Sequence[Any]) -> Any:
        return self._view._structured(self._native.names, values)

    def __repr__(self) -> str:
        return f"<item {self.key} of {self._view!r}>"


class ViewLayout(NamedTuple):
    """The outputs of a view's items. All fields but `names` have an entry for each output."""

    names: bytes
    squeezed: Sequence[bool]
    columns: Sequence[int]
    rows: Sequence[int]  # least number of rows to pad to, for outputs with a step axis


class View(Structured):
    """n items read directly in shared memory, in the order drawn. A context manager; see `TableHandle.view`.

    Their chunks are leased to this view until it is released: at the end of a `with`, by `release()`, when it is
    collected as garbage, or when the client is closed. In a forked child the view still belongs to the parent, and
    releasing it does nothing.

    Attributes:
        keys: int64 `[n]`, for `update_priorities`, `delete` and `get`.
        priorities, probabilities, times_sampled, table_size, episodes, steps, ages: `[n]`, as in `Batch`.
        is_contiguous: whether every array of `data` is the shared memory itself, not a copy.
    """

    _called = "view"

    def __init__(
        self, native: _core.View | None, numbers: ItemNumbers, copies: Sequence[NativeItem], signature: Signature
    ) -> None:
        self._native = native  # None: all items are copies
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
        """All items, read-only, in the structure and shapes of `Batch.data`: `[n, ...]`, `[n, L, ...]`.

        An array is the shared memory itself, strided, if the items lie at one stride: one after the other in a chunk,
        or in chunks at equal distances. This is so for a vector writer's unrolls of the same steps, unless an episode
        ended in between; see docs/windows.md. Otherwise it is a copy, made at the first read; `sample` copies faster.
        Raises ShmReplayError after the release.
        """
        self._check_held()
        return self._structured(self._layout.names, [read_only(output.data) for output in self._outputs])

    @property
    def mask(self) -> Any:
        """In the structure of `data`: as `Batch.mask`, bool `[n, L]`, or `[n]` without a step axis."""
        self._check_held()
        return self._structured(self._layout.names, [output.has for output in self._outputs])

    def for_dlpack(self, device: tuple[int, int] = HOST) -> Any:
        """In the structure of `data`: objects that `from_dlpack` of torch and other libraries takes without a copy.

        A tensor made of such an object keeps the rows leased as long as it exists, even after the release. So do not
        keep it long.

        Args:
            device: kind and number of the device to declare, as DLPack numbers them: `(1, 0)` is host memory, `(3, 0)`
                is host memory that the caller has page-locked.

        Raises:
            ValueError: an array is a copy, not the shared memory, and `device` is not `(1, 0)`.
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

        Arrays that are kept stay readable, but show whatever is written to the memory next: other steps, or parts.
        """
        self._is_released = True
        if self._native is not None:
            self._native.release()

    close = release

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> ViewedItem:
        if isinstance(index, str):
            refuse_part(self, index)
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
    def _layout(self) -> ViewLayout:
        if self._native is not None and (structure := self._native.structure()) is not None:
            return ViewLayout(*structure, self._native.rows())
        first = self._item(0)
        return ViewLayout(first.names, first.squeezed, first.columns, [0] * len(first.columns))

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
                f"{self!r}: an output is a copy, not memory of device {device}; see is_contiguous, and use its data"
            )
        return self._outputs[number].data  # writable, because NumPy before 2.1 exports no read-only array

    @property
    def _root(self) -> Node:
        names = b"" if self._is_released else self._layout.names
        return node_of(names) if names else self._signature.root

    def _structured(self, names: bytes, values: Sequence[Any]) -> Any:
        return unflatten_outputs(names, values) if names else self._signature.unflatten(values)

    @property
    def _num_copies(self) -> int:
        """How many of the first items are entirely copies."""
        return len(self) if self._native is None else self._native.num_copies

    @property
    def _smallest_probability(self) -> float:
        """The smallest probability of the table's items; 0 if it is unknown, or the same for all."""
        return 0.0 if self._native is None else self._native.smallest_probability

    def _row_numbers(self, output: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Which rows of the arena an output shows, `[n]` or, padded like a batch, `[n, L]`.

        Returns:
            int64: chunk * chunk_steps + row, or -1 where there is no row, as for items that are copies; and bool: True
            where the row is real.
        """
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

    def __reduce__(self) -> NoReturn:
        refuse_pickle(repr(self), "it leases memory to this process", "pass copies of its arrays")

    def __repr__(self) -> str:
        return f"<View of {len(self)} items of table {self._signature.table_name!r}>"


def read_only(data: Any) -> Any:
    """Returns a read-only view of an array; lists of steps are returned as they are."""
    if isinstance(data, np.ndarray) and data.flags.writeable:
        data = data.view()
        data.flags.writeable = False
    return data


def stacked(arrays: Sequence[NDArray[Any]], rows: int) -> NDArray[Any]:
    """Stacks arrays, each axis padded with 0 to its largest size; the first axis to at least `rows`."""
    shape = np.max([array.shape for array in arrays], axis=0).astype(int).tolist()
    if rows > 0:
        shape[0] = max(shape[0], rows)
    joined = np.zeros((len(arrays), *shape), arrays[0].dtype)
    for number, array in enumerate(arrays):
        place: tuple[int | slice, ...] = (number, *(slice(size) for size in array.shape))
        joined[place] = array
    return joined


def open_view(table: Handle, n: int, timeout_s: float | None, copied: list[View] | None = None) -> View:
    """See `TableHandle.view`. If this raises, the caller's list gets the error's `.batch`, if there is one."""
    copied = [] if copied is None else copied
    before = len(copied)
    try:
        return _open_or_copy(copied, table, n, timeout_s)
    except BaseException as error:
        if copied[before:]:
            error.batch = copied[-1]  # type: ignore[attr-defined]  # no call: see ARCHITECTURE.md, "Ctrl-C"
        raise


def _open_or_copy(copied: list[View], table: Handle, n: int, timeout_s: float | None) -> View:
    """Returns a view of n items. If it raises, the list gets a view with copies of those that were drawn, if any."""
    n = check_count(table._where, "n", n)
    _check_names(table, n)
    options = _core.SampleOptions(n, n)
    while True:
        table._check_open()
        native, uniforms = _core.View(table._native), table._random.uniforms(n)
        copy, before = partial(_copies, native, table._sig), len(copied)
        try:
            status, raised = native.draw(options, uniforms, timeout_s)
            if status == 0:
                view = View(native, ItemNumbers(*native.numbers()), [], table._sig)
                table._client._add_dependent(view)
                return view
            if raised is not None:
                raise raised
        except BaseException:
            _core.make_surely(copy, copied)
            native.release()
            raise
        _core.make_surely(copy, copied)
        native.release()
        drawn = copied[-1] if len(copied) > before else None
        if drawn is not None or not table._recover(status):
            table._raise_status(status, "view", timeout_s, batch=drawn, asked=n)


def _copies(native: _core.View, signature: Signature) -> View | None:
    """A view with copies of the items that a native view shows; None if there are none."""
    drawn = native.num_items
    if drawn == 0:
        return None
    numbers = ItemNumbers(*(array[:drawn] for array in native.numbers()))
    return View(None, numbers, [NativeItem(*native.item(index)).copied() for index in range(drawn)], signature)


def most_items(table: Handle) -> int:
    """The largest number of items in a view of the table: those whose chunks one lease can name."""
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
