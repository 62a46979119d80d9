"""What the core returns: batches, viewed items, and the structure of a table's items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shmreplay.columns.codecs import Bytes

NativeOutput: TypeAlias = tuple[int, bool, int]  # column, whether it has no step axis, rows of the table's longest item


class NativeBatch(NamedTuple):
    """A batch as the core returns it. Only the first `done` items of its arrays were drawn."""

    names: bytes
    squeezed: Sequence[bool]
    columns: Sequence[int]
    data: Sequence[Any]  # an array; (bytes, sizes) for a column with a codec; None for a column per item
    lengths: Sequence[NDArray[np.int32]]
    masks: Sequence[NDArray[np.bool_] | None]
    keys: NDArray[np.int64]
    priorities: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    times_sampled: NDArray[np.int64]
    table_size: NDArray[np.int64]
    episodes: NDArray[np.int64]
    steps: NDArray[np.int64]
    ages: NDArray[np.int64]
    values: tuple[Bytes, NDArray[np.int64]] | None = None  # the values that items brought: bytes and sizes
    # A row that could not be decompressed: number of the output, row of its chunk, stored bytes.
    damage: tuple[int, int, int] | None = None

    def numbers_of(self, done: int) -> NativeBatch:
        """Returns this batch with `keys` to `ages` cut to the first `done` items. Usually there is nothing to cut."""
        if done == len(self.keys):
            return self
        return self._replace(**{name: getattr(self, name)[:done] for name in ItemNumbers._fields})


class NativeItem(NamedTuple):
    """One viewed item as the core returns it. The fields up to `masks` have an entry for each output."""

    names: bytes
    squeezed: Sequence[bool]
    columns: Sequence[int]
    data: Sequence[Any]  # an array; (bytes, sizes) for a column with a codec; None for a column per item
    is_view: Sequence[bool]
    masks: Sequence[NDArray[np.bool_] | None]
    values: Bytes | None = None  # the values that it brought
    damage: tuple[int, int, int] | None = None  # as `NativeBatch.damage`
    insert_number: int = 0  # counts the table's inserts

    def copied(self) -> NativeItem:
        """Returns the item with read-only copies in place of the arena's memory."""
        data = [array.copy() if is_view else array for array, is_view in zip(self.data, self.is_view, strict=True)]
        for array in data:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return self._replace(data=data, is_view=[False] * len(data))


class ItemNumbers(NamedTuple):
    """The figures of the items drawn, `[n]` each, as in `Batch`."""

    keys: NDArray[np.int64]
    priorities: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    times_sampled: NDArray[np.int64]
    table_size: NDArray[np.int64]
    episodes: NDArray[np.int64]
    steps: NDArray[np.int64]
    ages: NDArray[np.int64]
