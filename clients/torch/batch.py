"""TorchBatch: a batch of tensors on the learner's device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shmreplay.clients.batches.batch import LEAST_PROBABILITY, Batch, Normalise, check_weights
from shmreplay.clients.batches.structured import Structured, show_parts
from shmreplay.clients.torch.parts import BatchParts, Form, TorchParts
from shmreplay.clients.torch.tensors import as_tensor, dtype_of
from shmreplay.columns import structure
from shmreplay.columns.conversion import flatten


class TorchBatch(Structured):
    """B items, in the order drawn: what `Batch` has, as tensors on one device.

    On the CPU they share the memory of the batch's arrays. All tensors but those of `data` are made when they are read.
    A batch can be moved to another device, and pickled, as data loaders do.

    Attributes:
        data: the table's structure with one tensor for each leaf, `[B, *shape]` or `[B, L, *shape]`; with a step axis
            `[L, B, *shape]` if `time_major`. In a table without a signature it has lists, as in `Batch`.
        time_major: whether the step axis comes first.
        keys_host: int64 `[B]`, a numpy array for `update_priorities`, which then needs no copy from the device.
    """

    def __init__(self, parts: TorchParts, form: Form, convert: Callable[[Any], Tensor] = as_tensor) -> None:
        """`convert` makes a tensor of each array or place in `parts`."""
        self._parts = parts
        self._form = form
        self._convert = convert
        self.time_major = form.time_major
        self.keys_host: NDArray[np.int64] = form.keys
        self.data = self._unflatten([self._leaf(value, i) for i, value in enumerate(parts.data)])

    @classmethod
    def of(cls, batch: Batch) -> TorchBatch:
        """Returns the same batch as tensors in host memory, which share the memory of its arrays.

        Raises:
            TypeError: torch has no dtype for one of its columns; the text names it.
        """
        return cls(BatchParts(batch), Form.of(batch))

    def __len__(self) -> int:
        return len(self.keys_host)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.keys.device

    # --- one number for each item --------------------------------------------------------------------------------

    @property
    def keys(self) -> Tensor:
        """int64 `[B]`, for `update_priorities`."""
        return self._number("keys")

    @property
    def priorities(self) -> Tensor:
        """float64 `[B]`, when drawn."""
        return self._number("priorities")

    @property
    def probabilities(self) -> Tensor:
        """float64 `[B]`: probability with which each item was drawn; 1 for Fifo, Lifo and heaps."""
        return self._number("probabilities")

    @property
    def times_sampled(self) -> Tensor:
        """int64 `[B]`, this draw included."""
        return self._number("times_sampled")

    @property
    def table_size(self) -> Tensor:
        """int64 `[B]`: items in the table when each was drawn, itself included."""
        return self._number("table_size")

    @property
    def episodes(self) -> Tensor:
        """int64 `[B]`: number of each item's episode."""
        return self._number("episodes")

    @property
    def steps(self) -> Tensor:
        """int64 `[B]`: index of each item's first step in its episode."""
        return self._number("steps")

    @property
    def ages(self) -> Tensor:
        """int64 `[B]`: number of inserts into the table since the item's own."""
        return self._number("ages")

    # --- one value for each output -------------------------------------------------------------------------------

    @property
    def lengths(self) -> Any:
        """In the structure of `data`: int32 `[B]`, the number of real rows of each item; 1 without a step axis."""
        return self._unflatten([self._convert(lengths) for lengths in self._parts.lengths])

    @property
    def mask(self) -> Any:
        """In the structure of `data`: bool, True where a row is real and has a value.

        `[B, L]`, or `[L, B]` if `time_major`; `[B]` without a step axis.
        """
        return self._unflatten([self._mask(i) for i in range(len(self._parts.masks))])

    @property
    def sizes(self) -> Any:
        """In the structure of `data`: int32 for columns of variable shape, as `Batch.sizes`; None for other columns."""
        sizes = self._parts.sizes
        return self._unflatten([None if value is None else self._convert(value) for value in sizes])

    def weights(self, beta: float, normalise: Normalise = "batch", dtype: torch.dtype = torch.float32) -> Tensor:
        """Importance weights `(N * P(i)) ** -beta` `[B]`, as `Batch.weights` has them.

        They are computed on the device in float64, and returned in `dtype`, so that they do not change a loss's dtype.

        Raises:
            ValueError, TypeError: as by `Batch.weights`.
        """
        beta = check_weights(beta, normalise)
        sizes = self.table_size.double()  # an int64 tensor times a float would be a float32 tensor
        chances = sizes * self.probabilities.clamp_min(LEAST_PROBABILITY)
        divisor: Tensor | float = 1.0
        if len(self) > 0 and normalise == "batch":
            divisor = chances.min()
        if len(self) > 0 and normalise == "table":
            smallest = torch.as_tensor(self._table_probability(), dtype=torch.float64)
            divisor = sizes * smallest.clamp_min(LEAST_PROBABILITY)
        return ((chances / divisor) ** -beta).to(dtype)

    def _table_probability(self) -> float | Tensor:
        smallest = self._form.smallest_probability
        return smallest if smallest > 0 else self.probabilities.min()

    # --- elsewhere -----------------------------------------------------------------------------------------------

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TorchBatch:
        """Returns the batch on another device, by `Tensor.to`."""
        return TorchBatch(
            self._parts.map(lambda part: self._convert(part).to(device, non_blocking=non_blocking)), self._form
        )

    def pin_memory(self, device: torch.device | str | None = None) -> TorchBatch:
        """Returns a copy in torch's page-locked memory, as a DataLoader with `pin_memory=True` does."""
        return TorchBatch(self._parts.map(lambda part: self._convert(part).pin_memory(device)), self._form)

    def __reduce__(self) -> tuple[type[TorchBatch], tuple[TorchParts, Form]]:
        kept = (np.ndarray, Tensor)
        return TorchBatch, (
            self._parts.map(lambda part: part if isinstance(part, kept) else self._convert(part)),
            self._form,
        )

    # --- its parts -----------------------------------------------------------------------------------------------

    def _number(self, name: str) -> Tensor:
        numbers = self._parts.numbers
        if not isinstance(number := numbers[name], Tensor):
            number = numbers[name] = self._convert(number)
        return number

    def _leaf(self, value: Any, i: int) -> Any:
        if isinstance(value, list):
            return value
        try:
            return self._convert(value)
        except TypeError as error:
            raise _named(error, self._form, i) from error

    def _mask(self, i: int, device: torch.device | None = None) -> Tensor:
        """The mask of output i on `device`; None: the batch's device. If all rows are real, nothing is copied."""
        if (mask := self._parts.masks[i]) is not None:
            return self._convert(mask).to(device)
        data = self._convert(self._parts.data[i])
        shape = data.shape[: 1 if self._form.squeezed[i] else 2]
        return torch.ones(shape, dtype=torch.bool, device=device or data.device)

    @property
    def _root(self) -> structure.Node:
        return self._form.root

    def _unflatten(self, values: Sequence[Any]) -> Any:
        return structure.unflatten(self._form.root, values)

    def __repr__(self) -> str:
        shapes = show_parts(self._root, flatten(self._root, self.data, "a batch"))
        return f"<TorchBatch of {len(self)} items of table {self._form.signature.table_name!r}: {shapes}>"


def check_dtypes(parts: TorchParts, form: Form) -> None:
    """Raises TypeError for the first output that torch has no dtype for; the text names it."""
    for i, value in enumerate(parts.data):
        try:
            if isinstance(value, np.ndarray):
                dtype_of(value.dtype)
        except TypeError as error:
            raise _named(error, form, i) from error


def _named(error: TypeError, form: Form, i: int) -> TypeError:
    """Returns the error with the path of output i in its text."""
    path = list(structure.leaf_paths(form.root))[i] or "step"
    return TypeError(f"table {form.signature.table_name!r}: {path!r}: {error}")
