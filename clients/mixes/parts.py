"""MixParts: the batches that the tables of a mix gave, and how they become one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.batches.arrangement import Arrangement
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.decoding import Shown
from shmreplay.clients.batches.native import NativeBatch

PER_ITEM = ("keys", "priorities", "probabilities", "times_sampled", "table_size", "episodes", "steps", "ages")


class Joined(NamedTuple):
    """The batches of several tables, joined. A `MixedBatch` is made of it."""

    native: NativeBatch
    arrangement: Arrangement
    parts: Sequence[Batch]
    sources: Sequence[int]  # the number of each part's table
    shown: list[Shown]


class MixLayout:
    """How batches of a mix's tables are joined: in the structure of the first table.

    The other tables have the same outputs, but perhaps in another order.

    Attributes:
        arrangements: the arrangement for each table.
        outputs: the outputs of the first table.
        is_alike: whether each column has a codec in all tables or in none.
        orders: for each table, the place of each of `outputs` among its own outputs.
    """

    def __init__(self, arrangements: Sequence[Arrangement]) -> None:
        self.arrangements = list(arrangements)
        self.outputs = arrangements[0].outputs
        own = [arrangement.outputs for arrangement in arrangements]
        places = [{output.path: at for at, output in enumerate(outputs)} for outputs in own]
        self.orders = [[places_of[output.path] for output in self.outputs] for places_of in places]
        # For each output and table: the output's number in that table's items.
        self._numbers = [
            [outputs[order[o]].number for outputs, order in zip(own, self.orders, strict=True)]
            for o in range(len(self.outputs))
        ]
        # For each output: {True} if all tables decode it, {False} if none does, both if some do.
        kinds = [
            {outputs[order[o]].spec.is_coded for outputs, order in zip(own, self.orders, strict=True)}
            for o in range(len(self.outputs))
        ]
        self.is_alike = all(len(kind) == 1 for kind in kinds)
        self.squeezed = [output.is_squeezed for output in self.outputs]
        self.columns = [output.column for output in self.outputs]

    @property
    def first(self) -> Arrangement:
        """The arrangement for the first table."""
        return self.arrangements[0]

    def is_of(self, arrangements: Sequence[Arrangement]) -> bool:
        """Whether this layout was made from exactly these arrangements."""
        return all(mine is theirs for mine, theirs in zip(self.arrangements, arrangements, strict=True))

    def new_arrays(self, num_items: int, longest: Sequence[Sequence[int]]) -> list[NDArray[Any] | None]:
        """Makes arrays for the rows of all tables, one for each output; None for columns with a codec.

        Args:
            num_items: number of items of a batch.
            longest: rows of the longest item, for each table and output; the arrays have room for the largest.
        """
        arrays: list[NDArray[Any] | None] = []
        for output, numbers in zip(self.outputs, self._numbers, strict=True):
            if output.spec.is_coded:
                arrays.append(None)
                continue
            axes = [num_items]
            if not output.is_squeezed:
                axes.append(output.rows or max(rows[n] for rows, n in zip(longest, numbers, strict=True)))
            arrays.append(np.empty((*axes, *output.spec.least_shape), output.spec.dtype))
        return arrays


class MixParts:
    """The batches that the tables of a mix have given so far, in the order of the tables."""

    def __init__(self, layout: MixLayout) -> None:
        self._layout = layout
        self._batches: list[Batch] = []
        self._sources: list[int] = []

    def add(self, source: int, batch: Batch | None) -> None:
        """Adds the batch of table number `source`; None: it gave nothing."""
        if batch is not None:
            self._batches.append(batch)
            self._sources.append(source)

    def joined(self, arrays: Sequence[NDArray[Any] | None] | None) -> Joined | None:
        """Joins all batches; None if there are none.

        Args:
            arrays: one array for each output, for all items. If all batches were written into them, they are used as
                they are; otherwise the batches are copied together.
        """
        if not self._batches:
            return None
        arrays = self._written_into(arrays)
        layout = self._layout
        data: list[NDArray[Any] | None] = []  # arrays that a sampler writes to again; None for columns with a codec
        shown, lengths, masks = [], [], []
        for o, squeezed in enumerate(layout.squeezed):
            parts = [batch._shown[at] for batch, at in self._output(o)]
            array = None if arrays is None else arrays[o]
            shown.append(self._join_shown(parts, squeezed) if array is None else Shown(array[: self._num_items]))
            data.append(shown[-1].data if array is None and shown[-1].has is None else array)
            lengths.append(np.concatenate([batch._native.lengths[at][: len(batch)] for batch, at in self._output(o)]))
            masks.append(self._join_masks(o, squeezed, [_axes_of(part) for part in parts]))
        per_item: dict[str, Any] = {
            name: np.concatenate([getattr(batch, name) for batch in self._batches]) for name in PER_ITEM
        }
        native = NativeBatch(layout.first.names, layout.squeezed, layout.columns, data, lengths, masks, **per_item)
        return Joined(native, layout.first, self._batches, self._sources, shown)

    @property
    def _num_items(self) -> int:
        return sum(map(len, self._batches))

    def _written_into(self, arrays: Sequence[NDArray[Any] | None] | None) -> Sequence[NDArray[Any] | None] | None:
        """Returns the arrays if all batches were written into them, otherwise None."""
        first = next((o for o, array in enumerate(arrays or ()) if array is not None), None)
        if arrays is None or first is None:
            return None
        is_theirs = (np.may_share_memory(batch._native.data[at], arrays[first]) for batch, at in self._output(first))
        return arrays if all(is_theirs) else None

    def _join_shown(self, parts: Sequence[Shown], squeezed: bool) -> Shown:
        """Joins one output of all parts; for columns with a codec also `has` and `sizes`."""
        data: Any = [step for part in parts for step in part.data] if isinstance(parts[0].data, list) else None
        if data is None:
            data = self._join([part.data for part in parts], squeezed)
        if all(part.has is None for part in parts):
            return Shown(data)
        has = self._join([_has_of(part, 1 if squeezed else 2) for part in parts], squeezed)
        sizes = [part.sizes for part in parts if part.sizes is not None]
        return Shown(data, has, self._join(sizes, squeezed) if sizes else None)

    def _output(self, o: int) -> list[tuple[Batch, int]]:
        """For each part: its batch, and the place there of the first table's output o."""
        return [
            (batch, self._layout.orders[source][o]) for source, batch in zip(self._sources, self._batches, strict=True)
        ]

    def _axis(self, squeezed: bool) -> int:
        """The number of the axis of the items."""
        return 1 if self._layout.first.time_major and not squeezed else 0

    def _counted(self, batch: Batch, values: NDArray[Any], squeezed: bool) -> NDArray[Any]:
        return values[:, : len(batch)] if self._axis(squeezed) == 1 else values[: len(batch)]

    def _join_masks(self, o: int, squeezed: bool, data: Sequence[NDArray[Any]]) -> NDArray[np.bool_] | None:
        masks = [batch._native.masks[at] for batch, at in self._output(o)]
        lengths = {part.shape[1 - self._axis(squeezed)] for part in data} if not squeezed else {1}
        if len(lengths) == 1 and all(mask is None for mask in masks):
            return None
        whole = [np.ones(part.shape[: 1 if squeezed else 2], np.bool_) for part in data]
        counted = [
            self._counted(batch, mask, squeezed) if mask is not None else real
            for (batch, _), mask, real in zip(self._output(o), masks, whole, strict=True)
        ]
        return self._join(counted, squeezed)

    def _join(self, parts: Sequence[NDArray[Any]], squeezed: bool) -> NDArray[Any]:
        """Joins arrays along the axis of the items, padded with 0 to the longest item and the largest row."""
        axis = self._axis(squeezed)
        shape = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
        shape[axis] = sum(part.shape[axis] for part in parts)
        others = [number for number in range(len(shape)) if number != axis]
        if all(part.shape[number] == shape[number] for part in parts for number in others):
            return np.concatenate(parts, axis=axis)
        joined = np.zeros(shape, parts[0].dtype)
        at = 0
        for part in parts:
            place = [slice(size) for size in part.shape]
            place[axis] = slice(at, at + part.shape[axis])
            joined[tuple(place)] = part
            at += part.shape[axis]
        return joined


def _axes_of(shown: Shown) -> NDArray[Any]:
    """An array whose first axes are those of the output's mask."""
    array: NDArray[Any] = shown.data if shown.has is None else shown.has
    return array


def _has_of(shown: Shown, num_axes: int) -> NDArray[np.bool_]:
    return np.ones(shown.data.shape[:num_axes], np.bool_) if shown.has is None else shown.has
