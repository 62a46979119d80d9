"""What the core hands over: batches, viewed items, and how the items of a table are structured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shmreplay.columns.codecs import Bytes

NativeOutput: TypeAlias = tuple[int, bool, int]  # column, whether it has no step axis, rows of the table's longest item


class NativeBatch(NamedTuple):
    """What the core hands over: arrays whose first `done` items count."""

    names: bytes
    squeezed: Sequence[bool]
    columns: Sequence[int]
    data: Sequence[Any]  # of columns of a codec their bytes and sizes, of those that are per item None
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
    values: tuple[Bytes, NDArray[np.int64]] | None = None  # what the items brought: bytes and sizes
    damage: tuple[int, int, int] | None = None  # an output, and a row of it that could not be made: its stored bytes

    def numbers_of(self, done: int) -> NativeBatch:
        """The same, with what there is a number an item of cut to the first `done`. Mostly they are all there."""
        if done == len(self.keys):
            return self
        return self._replace(
            keys=self.keys[:done],
            priorities=self.priorities[:done],
            probabilities=self.probabilities[:done],
            times_sampled=self.times_sampled[:done],
            table_size=self.table_size[:done],
            episodes=self.episodes[:done],
            steps=self.steps[:done],
            ages=self.ages[:done],
        )


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
