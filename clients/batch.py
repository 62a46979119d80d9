"""Batch: what `sample` and `get` return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shmreplay.checks import check_float
from shmreplay.item_structure import unflatten_outputs
from shmreplay.signature import Signature

Normalise = Literal["batch", "table"] | None
Output = tuple[int, bool, int]  # its column, whether it has no step axis, how long that is


class NativeBatch(NamedTuple):
    """What the core hands over: arrays whose first `done` items count."""

    names: bytes
    squeezed: Sequence[bool]
    columns: Sequence[int]
    data: Sequence[NDArray[Any]]
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


class Batch:
    """B items, in the order drawn.

    Attributes:
        data: the table's structure with an array a leaf, of the column's dtype: `[B, ...]` for one-step items,
            `[B, L, ...]` for items of up to L steps. Rows that an item does not have are 0.
        time_major: whether arrays with a step axis, those of `mask` among them, are `[L, B, ...]` instead.
        keys: int64 `[B]`, for `update_priorities`, `delete` and `get`.
        priorities: float64 `[B]`, when drawn.
        probabilities: float64 `[B]`: with which each was drawn; 1 for Fifo, Lifo and heaps.
        times_sampled: int64 `[B]`, this draw included.
        table_size: int64 `[B]`: items in the table when each was drawn, itself included.
        episodes: int64 `[B]`: equal for items of one episode, of whatever writer.
        steps: int64 `[B]`: index in its episode of each item's first step; negative if it reaches back over the
            episode's start (`end_episode(clear_history=False)`).
        ages: int64 `[B]`: inserts into the table since each item's own.
    """

    def __init__(
        self,
        native: NativeBatch,
        done: int,
        signature: Signature,
        smallest_probability: float,
        time_major: bool = False,
    ) -> None:
        self.time_major = time_major
        self._native = native
        self._done = done
        self._signature = signature
        self._smallest_probability = smallest_probability
        self.data: Any = self._by_step(native.data)
        self.keys: NDArray[np.int64] = native.keys[:done]
        self.priorities: NDArray[np.float64] = native.priorities[:done]
        self.probabilities: NDArray[np.float64] = native.probabilities[:done]
        self.times_sampled: NDArray[np.int64] = native.times_sampled[:done]
        self.table_size: NDArray[np.int64] = native.table_size[:done]
        self.episodes: NDArray[np.int64] = native.episodes[:done]
        self.steps: NDArray[np.int64] = native.steps[:done]
        self.ages: NDArray[np.int64] = native.ages[:done]

    @classmethod
    def empty(cls, signature: Signature, names: bytes = b"", outputs: Sequence[Output] | None = None) -> Batch:
        """A batch of no items; of `outputs`, or else of the signature's columns without a step axis."""
        if outputs is None:
            outputs = [(leaf.index, True, 1) for leaf in signature.leaves]
        data, squeezed = [], [squeezed for _, squeezed, _ in outputs]
        for column, is_squeezed, rows in outputs:
            spec = signature.leaves[column].spec
            data.append(np.empty((0, *(() if is_squeezed else (rows,)), *spec.shape), spec.dtype))
        lengths = [np.empty(0, np.int32) for _ in data]
        ints, floats = np.empty(0, np.int64), np.empty(0, np.float64)
        head = (names, squeezed, [column for column, _, _ in outputs], data, lengths, [None] * len(data))
        return cls(NativeBatch(*head, ints, floats, floats, ints, ints, ints, ints, ints), 0, signature, 0.0)

    def __len__(self) -> int:
        return self._done

    @property
    def lengths(self) -> Any:
        """In data's structure: int32 `[B]`, how many rows of each item are real; 1 where there is no step axis."""
        return self._structured(self._native.lengths)

    @property
    def mask(self) -> Any:
        """In data's structure: bool, True where a row is real: `[B, L]`, or `[B]` where there is no step axis.

        `[L, B]` if `time_major`.
        """
        masks = [
            np.ones(data.shape[: 1 if squeezed else 2], np.bool_) if mask is None else mask
            for mask, data, squeezed in zip(self._native.masks, self._native.data, self._native.squeezed, strict=True)
        ]
        return self._by_step(masks)

    def weights(self, beta: float, normalise: Normalise = "batch") -> NDArray[np.float64]:
        """Importance weights `(N * P(i)) ** -beta` (Schaul et al. 2016), float64 `[B]`.

        Args:
            beta: 0 gives ones, 1 corrects fully.
            normalise: what the weights are divided by: the largest of this batch ("batch"), the largest any item of the
                table could have ("table": the one of the smallest positive priority), or nothing (None).

        Raises:
            ValueError: beta is not finite or negative; unknown `normalise`.
            TypeError: beta is no number.
        """
        beta = check_float("weights", "beta", beta)
        if not (np.isfinite(beta) and beta >= 0):
            raise ValueError(f"weights: beta is {beta!r}; expected a finite number >= 0")
        if normalise not in ("batch", "table", None):
            raise ValueError(f"weights: normalise is {normalise!r}; expected 'batch', 'table' or None")
        weights = np.asarray((self.table_size * self.probabilities) ** -beta, np.float64)
        if len(weights) == 0:
            return weights
        if normalise == "batch":
            weights /= weights.max()
        if normalise == "table":
            weights /= (self.table_size * self._table_probability()) ** -beta
        return weights

    def _table_probability(self) -> float:
        # Samplers that do not know priorities draw every item with the same probability.
        return self._smallest_probability if self._smallest_probability > 0 else float(self.probabilities.min())

    def _structured(self, values: Sequence[NDArray[Any]]) -> Any:
        return self._unflatten([value[: self._done] for value in values])

    def _by_step(self, values: Sequence[NDArray[Any]]) -> Any:
        if not self.time_major:
            return self._structured(values)
        axes = zip(values, self._native.squeezed, strict=True)
        return self._unflatten(
            [value[: self._done] if squeezed else value[:, : self._done] for value, squeezed in axes]
        )

    def _unflatten(self, counted: Sequence[NDArray[Any]]) -> Any:
        names = self._native.names
        return unflatten_outputs(names, counted) if names else self._signature.unflatten(counted)

    def __repr__(self) -> str:
        return f"<Batch of {self._done} items of table {self._signature.table_name!r}>"
