"""View: items looked at where they lie, without a copy, until they are released."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.clients.arrays import check_count
from shmreplay.clients.decoding import Shown, mask_of, show_item
from shmreplay.clients.handle import raise_with
from shmreplay.codecs import Bytes
from shmreplay.errors import ShmReplayError
from shmreplay.item_structure import unflatten_outputs
from shmreplay.signature import Signature

if TYPE_CHECKING:
    from shmreplay.clients.handle import Handle


class NativeItem(NamedTuple):
    """What the core hands over of one item; the first ones have an entry for each output."""

    names: bytes
    squeezed: Sequence[bool]
    columns: Sequence[int]
    data: Sequence[Any]  # of columns of a codec their bytes and sizes, of those that are per item None
    is_view: Sequence[bool]
    masks: Sequence[NDArray[np.bool_] | None]
    values: Bytes | None = None  # what it brought
    damage: tuple[int, int, int] | None = None  # as `NativeBatch.damage`
    insert_number: int = 0  # the how many-th insert of the table it was

    def copied(self) -> NativeItem:
        """The same, without memory of the arena."""
        data = [array.copy() if is_view else array for array, is_view in zip(self.data, self.is_view, strict=True)]
        for array in data:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return self._replace(data=data, is_view=[False] * len(data))


class ItemNumbers(NamedTuple):
    """What there is a number of for each item drawn, as `Batch` has it, `[n]`."""

    keys: NDArray[np.int64]
    priorities: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    times_sampled: NDArray[np.int64]
    table_size: NDArray[np.int64]
    episodes: NDArray[np.int64]
    steps: NDArray[np.int64]
    ages: NDArray[np.int64]


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
        stride (they cross into another chunk), where rows are padding, and of what was drawn before the call had to
        wait for the rate limiter.
        """
        self._view._check_held()
        return self._structured(self._native.is_view)

    @property
    def mask(self) -> Any:
        """In data's structure: bool, True where a row is real: `[rows]`, or `[]` where there is no step axis."""
        self._view._check_held()
        native = self._native
        masks = [
            mask_of(mask, shown, 0 if squeezed else 1)
            for mask, shown, squeezed in zip(native.masks, self._shown, native.squeezed, strict=True)
        ]
        return self._structured(masks)

    def _structured(self, values: Sequence[Any]) -> Any:
        names = self._native.names
        return unflatten_outputs(names, values) if names else self._view._signature.unflatten(values)

    def __repr__(self) -> str:
        return f"<item {self.key} of {self._view!r}>"


class View:
    """n items where they lie in shared memory, in the order drawn. A context manager; see `TableHandle.view`.

    Their chunks are leased to this view until it is released: at the end of a `with`, by `release()`, when it is
    garbage or when the client is closed. In a forked child it is the parent's: to release it there does nothing.
    """

    def __init__(
        self, native: _core.View | None, numbers: ItemNumbers, copies: Sequence[NativeItem], signature: Signature
    ) -> None:
        self._native = native  # None: the items are all copies
        self._numbers = numbers
        self._copies = copies
        self._signature = signature
        self._is_released = False
        self.keys: NDArray[np.int64] = numbers.keys

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

    @property
    def _num_copies(self) -> int:
        """How many items, the first ones, are copies as a whole."""
        return len(self) if self._native is None else self._native.num_copies

    @property
    def _smallest_probability(self) -> float:
        """That an item of the table could have had; 0 where it is not known, or all are drawn alike."""
        return 0.0 if self._native is None else self._native.smallest_probability

    def _row_numbers(self, output: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Which rows of the arena an output shows, `[n]` or `[n, L]` as a batch is padded: chunk * chunk_steps + row,
        -1 where there is none; and where there is a real one. Of items that are copies there is none."""
        self._check_held()
        assert self._native is not None  # who asks has looked at _num_copies
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


def open_view(table: Handle, n: int, timeout_s: float | None) -> View:
    """See `TableHandle.view`."""
    n = check_count(table._where, "n", n)
    _check_names(table, n)
    while True:
        table._check_open()
        native = _core.View(table._native)
        status, drawn, raised = native.draw(n, table._random.uniforms(n), timeout_s)
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
