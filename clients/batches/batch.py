"""Batch: what `sample` and `get` return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shmreplay.base.cached_property import cached_property
from shmreplay.base.checks import check_float
from shmreplay.clients.batches.decoding import Ragged, Shown, mask_of, show
from shmreplay.clients.batches.native import NativeBatch, NativeOutput
from shmreplay.clients.batches.structured import Structured, show_parts
from shmreplay.columns import structure
from shmreplay.columns.item_structure import node_of, unflatten_outputs
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import Signature

Normalise = Literal["batch", "table"] | None

LEAST_PROBABILITY = float(np.finfo(np.float64).tiny)  # weights take smaller ones for this: no ratio of two is 0 / 0


class Batch(Structured):
    """B items, in the order drawn.

    `data`, `mask` and `sizes` are made when they are first read. If the table has columns in the heap, the first read
    decodes their values. It raises SegmentFailed if stored bytes are damaged, and MemoryError if memory runs out.

    Attributes:
        data: the table's structure with one array for each leaf, of the column's dtype: `[B, ...]` for one-step items,
            `[B, L, ...]` for items of up to L steps. Rows that an item does not have, and values that a step left out,
            are 0. Columns of variable shape are padded with 0 to the longest in the batch, or joined to one array of
            all rows (`ragged="concat"`). In a table without a signature it is a list of B steps as they were inserted,
            or of B lists of steps.
        time_major: whether arrays with a step axis, also those of `mask`, are `[L, B, ...]` instead. Joined rows and
            lists stay as they are.
        keys: int64 `[B]`, for `update_priorities`, `delete` and `get`.
        priorities: float64 `[B]`, when drawn.
        probabilities: float64 `[B]`: probability with which each item was drawn; 1 for Fifo, Lifo and heaps.
        times_sampled: int64 `[B]`, this draw included. It stays at 2**32 - 1.
        table_size: int64 `[B]`: items in the table when each was drawn, itself included.
        episodes: int64 `[B]`: number of each item's episode, different for episodes of different writers.
        steps: int64 `[B]`: index of each item's first step in its episode; negative if the item begins before the
            episode's start (`end_episode(clear_history=False)`).
        ages: int64 `[B]`: number of inserts into the table since the item's own.
    """

    def __init__(
        self,
        native: NativeBatch,
        done: int,
        signature: Signature,
        smallest_probability: float,
        time_major: bool = False,
        ragged: Ragged = "pad",
    ) -> None:
        self.time_major = time_major
        self._native = native
        self._done = done
        self._signature = signature
        self._smallest_probability = smallest_probability
        self._ragged = ragged
        self._data: Any = None  # until it is read
        counted = native.numbers_of(done)
        self.keys: NDArray[np.int64] = counted.keys
        self.priorities: NDArray[np.float64] = counted.priorities
        self.probabilities: NDArray[np.float64] = counted.probabilities
        self.times_sampled: NDArray[np.int64] = counted.times_sampled
        self.table_size: NDArray[np.int64] = counted.table_size
        self.episodes: NDArray[np.int64] = counted.episodes
        self.steps: NDArray[np.int64] = counted.steps
        self.ages: NDArray[np.int64] = counted.ages

    @cached_property
    def _shown(self) -> list[Shown]:
        return show(self._native, self._done, self._signature, self._ragged, self.time_major)

    @property
    def data(self) -> Any:
        """The items' arrays."""
        if self._data is None:
            self._data = self._made()
        return self._data

    def _made(self) -> Any:
        if self._signature.needs_decoding or self.time_major or self._native.damage is not None:
            return self._unflatten([shown.data for shown in self._shown])
        done = self._done  # the usual case: nothing to decode
        return self._unflatten([array[:done] for array in self._native.data])

    @classmethod
    def empty(cls, signature: Signature, names: bytes = b"", outputs: Sequence[NativeOutput] | None = None) -> Batch:
        """Makes a batch of no items with these outputs. None: the signature's columns, without a step axis."""
        if outputs is None:
            outputs = [(leaf.index, True, 1) for leaf in signature.leaves]
        squeezed = [squeezed for _, squeezed, _ in outputs]
        data = [_nothing(signature.leaves[column], () if squeezed else (rows,)) for column, squeezed, rows in outputs]
        lengths = [np.empty(0, np.int32) for _ in data]
        ints, floats = np.empty(0, np.int64), np.empty(0, np.float64)
        head = (names, squeezed, [column for column, _, _ in outputs], data, lengths, [None] * len(data))
        return cls(NativeBatch(*head, ints, floats, floats, ints, ints, ints, ints, ints), 0, signature, 0.0)

    def __len__(self) -> int:
        return self._done

    @property
    def lengths(self) -> Any:
        """In the structure of `data`: int32 `[B]`, the number of real rows of each item; 1 without a step axis."""
        return self._unflatten([lengths[: self._done] for lengths in self._native.lengths])

    @property
    def mask(self) -> Any:
        """In the structure of `data`: bool, True where a row is real and has a value.

        `[B, L]`, or `[L, B]` if `time_major`; `[B]` without a step axis.
        """
        return self._unflatten(self._masks)

    @property
    def _masks(self) -> list[NDArray[np.bool_]]:
        """The mask of each output."""
        return [
            mask_of(self._counted(mask, squeezed), shown, 1 if squeezed else 2)
            for mask, shown, squeezed in zip(self._native.masks, self._shown, self._native.squeezed, strict=True)
        ]

    @property
    def sizes(self) -> Any:
        """In the structure of `data`: the sizes of each row's k axes that are None in the column's shape.

        int32 `[B, L, k]`, or `[L, B, k]` if `time_major`; `[B, k]` without a step axis. 0 where there is no row. None
        for columns of a fixed shape.
        """
        return self._unflatten([shown.sizes for shown in self._shown])

    def weights(self, beta: float, normalise: Normalise = "batch") -> NDArray[np.float64]:
        """Importance weights `(N * P(i)) ** -beta` (Schaul et al. 2016), float64 `[B]`.

        Args:
            beta: 0 gives ones, 1 corrects fully.
            normalise: what the weights are divided by: the largest weight of this batch ("batch"); the largest weight
                that an item of the table could have, that of its smallest positive priority ("table"); or nothing
                (None).

        No weight is nan, whatever the priorities: probabilities below 2.2e-308 count as that.

        Raises:
            ValueError: beta is negative or not finite, or `normalise` is unknown.
            TypeError: beta is not a number.
        """
        beta = check_weights(beta, normalise)
        chances: Any = self.table_size * np.maximum(self.probabilities, LEAST_PROBABILITY)
        divisor: Any = 1.0
        if len(self) > 0 and normalise == "batch":
            divisor = chances.min()
        if len(self) > 0 and normalise == "table":
            divisor = self.table_size * np.maximum(self._table_probability(), LEAST_PROBABILITY)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray((chances / divisor) ** -beta, np.float64)

    def _table_probability(self) -> float:
        # 0: the sampler ignores priorities, and draws every item with the same probability.
        return self._smallest_probability if self._smallest_probability > 0 else float(self.probabilities.min())

    def _counted(self, mask: NDArray[np.bool_] | None, squeezed: bool) -> NDArray[np.bool_] | None:
        """The part of a mask for the items that were drawn; the mask has a place for each item asked for."""
        if mask is None:
            return None
        return mask[:, : self._done] if self.time_major and not squeezed else mask[: self._done]

    @property
    def _root(self) -> structure.Node:
        names = self._native.names
        return node_of(names) if names else self._signature.root

    def _unflatten(self, values: Sequence[Any]) -> Any:
        names = self._native.names
        return unflatten_outputs(names, values) if names else self._signature.unflatten(values)

    def _undecoded(self, data: Any, column: int, squeezed: bool) -> Any:
        """An output for a repr, which decodes nothing: its array, or a text where its bytes are not read yet."""
        leaf = self._signature.leaves[column]
        if leaf.is_whole_step:
            return f"{self._done} steps"
        if leaf.spec.is_coded:
            return f"{leaf.spec.dtype.name}[{self._done}, ...]"
        return data[:, : self._done] if self.time_major and not squeezed else data[: self._done]

    def _shapes(self) -> str:
        native = self._native
        if (shown := vars(self).get("_shown")) is not None:
            return show_parts(self._root, [output.data for output in shown])
        outputs = zip(native.data, native.columns, native.squeezed, strict=True)
        return show_parts(self._root, [self._undecoded(*output) for output in outputs])

    def __repr__(self) -> str:
        return f"<Batch of {self._done} items of table {self._signature.table_name!r}: {self._shapes()}>"


def check_weights(beta: float, normalise: Normalise) -> float:
    """Returns beta as a float. Raises ValueError or TypeError for arguments that `Batch.weights` does not take."""
    beta = check_float("weights", "beta", beta)
    if not (np.isfinite(beta) and beta >= 0):
        raise ValueError(f"weights: beta is {beta!r}; expected a finite number >= 0")
    if normalise not in ("batch", "table", None):
        raise ValueError(f"weights: normalise is {normalise!r}; expected 'batch', 'table' or None")
    return beta


def _nothing(leaf: Leaf, rows: tuple[int, ...]) -> Any:
    """What the core returns for a column in a batch of no items."""
    if leaf.spec.is_per_item:
        return None
    if leaf.spec.is_coded:
        return np.empty(0, np.uint8), np.empty((0, *rows), np.int64)
    return np.empty((0, *rows, *leaf.spec.least_shape), leaf.spec.dtype)
