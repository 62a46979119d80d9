"""MixedBatch: one batch of several tables' items, put together from a batch of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.batch import Batch, NativeBatch
from shmreplay.clients.sampling import Arrangement

if TYPE_CHECKING:
    from shmreplay.clients.mix import Mix

PER_ITEM = ("keys", "priorities", "probabilities", "times_sampled", "table_size", "episodes", "steps", "ages")


class MixedBatch(Batch):
    """B items of several tables: those of the mix's first table first. All else is as in `Batch`.

    `probabilities`, `table_size`, `ages` and `times_sampled` are those of each item in its own table, and `keys` mean
    something only together with `sources`.

    Attributes:
        mix: what it was sampled by.
        sources: int64 `[B]`: which table of the mix each item is of.
    """

    def __init__(
        self, native: NativeBatch, arrangement: Arrangement, parts: Sequence[Batch], sources: Sequence[int], mix: Mix
    ) -> None:
        total = sum(map(len, parts))
        super().__init__(native, total, arrangement.items.signature, 0.0, arrangement.time_major)
        self.mix = mix
        self.sources: NDArray[np.int64] = np.repeat(np.array(sources, np.int64), [len(part) for part in parts])
        self._table_probabilities = np.repeat(
            np.array([part._table_probability() for part in parts]), [len(part) for part in parts]
        )

    def _table_probability(self) -> Any:
        return self._table_probabilities  # of each item's own table

    def __repr__(self) -> str:
        return f"<MixedBatch of {len(self)} items of {self.mix!r}>"


class Layout:
    """How batches of a mix's tables go together: as the first table's, whose outputs may lie elsewhere in the others'.

    Attributes:
        arrangements: by table, of the options asked for.
        outputs: the first table's.
        orders: by table, the place of each of those outputs among its own.
    """

    def __init__(self, arrangements: Sequence[Arrangement]) -> None:
        self.arrangements = list(arrangements)
        self.outputs = arrangements[0].outputs
        own = [arrangement.outputs for arrangement in arrangements]
        places = [{output.path: at for at, output in enumerate(outputs)} for outputs in own]
        self.orders = [[places_of[output.path] for output in self.outputs] for places_of in places]
        # By output and table, its number in that table's items.
        self._numbers = [
            [outputs[order[o]].number for outputs, order in zip(own, self.orders, strict=True)]
            for o in range(len(self.outputs))
        ]
        self.squeezed = [output.is_squeezed for output in self.outputs]
        self.columns = [output.column for output in self.outputs]

    @property
    def first(self) -> Arrangement:
        """The first table's."""
        return self.arrangements[0]

    def is_of(self, arrangements: Sequence[Arrangement]) -> bool:
        """Whether it is the one of these."""
        return all(mine is theirs for mine, theirs in zip(self.arrangements, arrangements, strict=True))

    def new_arrays(self, num_items: int, longest: Sequence[Sequence[int]]) -> list[NDArray[Any]]:
        """For the rows of all tables, as long as the longest item of any: `longest` has rows by table and output."""
        arrays: list[NDArray[Any]] = []
        for output, numbers in zip(self.outputs, self._numbers, strict=True):
            axes = [num_items]
            if not output.is_squeezed:
                axes.append(output.rows or max(rows[n] for rows, n in zip(longest, numbers, strict=True)))
            arrays.append(np.empty((*axes, *output.spec.shape), output.spec.dtype))
        return arrays


class Parts:
    """What the tables of a mix have given so far, in their order."""

    def __init__(self, mix: Mix, layout: Layout) -> None:
        self._mix = mix
        self._layout = layout
        self._batches: list[Batch] = []
        self._sources: list[int] = []

    def add(self, source: int, batch: Batch | None) -> None:
        """One more, of that table; None: it gave nothing."""
        if batch is not None:
            self._batches.append(batch)
            self._sources.append(source)

    def joined(self, arrays: Sequence[NDArray[Any]] | None) -> MixedBatch | None:
        """All of them as one; None if there are none.

        Args:
            arrays: for all items, one array an output. What all batches were written into is used as it is.
        """
        if not self._batches:
            return None
        if arrays is not None and not all(
            np.may_share_memory(batch._native.data[at], arrays[0]) for batch, at in self._output(0)
        ):
            arrays = None
        layout = self._layout
        data, lengths, masks = [], [], []
        for o, squeezed in enumerate(layout.squeezed):
            parts = [self._counted(batch, batch._native.data[at], squeezed) for batch, at in self._output(o)]
            data.append(self._join(parts, squeezed) if arrays is None else arrays[o])
            lengths.append(np.concatenate([batch._native.lengths[at][: len(batch)] for batch, at in self._output(o)]))
            masks.append(self._join_masks(o, squeezed, parts))
        per_item = {name: np.concatenate([getattr(batch, name) for batch in self._batches]) for name in PER_ITEM}
        native = NativeBatch(layout.first.names, layout.squeezed, layout.columns, data, lengths, masks, **per_item)
        return MixedBatch(native, layout.first, self._batches, self._sources, self._mix)

    def _output(self, o: int) -> list[tuple[Batch, int]]:
        """By part, its batch and the number there of the first table's output o."""
        return [
            (batch, self._layout.orders[source][o]) for source, batch in zip(self._sources, self._batches, strict=True)
        ]

    def _axis(self, squeezed: bool) -> int:
        """That of the items."""
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
        """One behind the other, padded with 0 to the longest."""
        axis = self._axis(squeezed)
        if squeezed or len({part.shape[1 - axis] for part in parts}) == 1:
            return np.concatenate(parts, axis=axis)
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        shape[1 - axis] = max(part.shape[1 - axis] for part in parts)
        joined = np.zeros(shape, parts[0].dtype)
        at = 0
        for part in parts:
            place = [slice(part.shape[0]), slice(part.shape[1])]
            place[axis] = slice(at, at + part.shape[axis])
            joined[tuple(place)] = part
            at += part.shape[axis]
        return joined
