"""JaxBatch: a batch of JAX arrays, made by `JaxSampler`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from shmreplay.base.cached_property import cached_property
from shmreplay.clients.batches.batch import Batch, Normalise
from shmreplay.clients.batches.structured import Structured, show_parts
from shmreplay.clients.jax.placement import Placement
from shmreplay.columns.conversion import flatten
from shmreplay.columns.signature import Signature
from shmreplay.columns.structure import Node


class JaxBatch(Structured):
    """B items as JAX arrays, in the order drawn.

    Attributes:
        data: the structure of `Batch.data` with one `jax.Array` for each leaf, `[B, ...]` or `[B, L, ...]`. Unless
            `jax_enable_x64` is set, columns of 64 bits become columns of 32 bits, as everywhere in JAX.
        keys: int64 `[B]`, for `update_priorities`; a NumPy array, since a key does not fit into 32 bits.
        host: the batch as it was sampled, with NumPy arrays. Do not write to them. Use it for computations on the host,
            such as `sr.n_step_targets(batch.host, gamma)`, and for `ages`, `episodes` and other figures.
    """

    def __init__(self, host: Batch, placement: Placement) -> None:
        self.host = host
        self.keys: NDArray[np.int64] = host.keys
        self._placement = placement
        self.data: Any = self._placed([shown.data for shown in host._shown])

    def __len__(self) -> int:
        return len(self.host)

    @property
    def time_major(self) -> bool:
        """Whether the step axis comes first, as in `Batch`."""
        return self.host.time_major

    @property
    def _signature(self) -> Signature:
        return self.host._signature

    @cached_property
    def mask(self) -> Any:
        """In the structure of `data`: bool, True where a row is real and has a value, as `Batch.mask`."""
        return self._placed(self.host._masks)

    @cached_property
    def lengths(self) -> Any:
        """In the structure of `data`: int32 `[B]`, the number of real rows of each item."""
        lengths = [lengths[: len(self)] for lengths in self.host._native.lengths]
        return self.host._unflatten(self._placement.place(lengths, [0] * len(lengths)))

    @cached_property
    def probabilities(self) -> jax.Array:
        """float32 `[B]`: probability with which each item was drawn."""
        return self._one_an_item(self.host.probabilities)

    def weights(self, beta: float, normalise: Normalise = "batch") -> jax.Array:
        """Importance weights, float32 `[B]`: see `Batch.weights`."""
        return self._one_an_item(self.host.weights(beta, normalise))

    def _one_an_item(self, values: NDArray[np.float64]) -> jax.Array:
        [placed] = self._placement.place([values.astype(np.float32)], [0])
        return placed

    @property
    def _root(self) -> Node:
        return self.host._root

    def _placed(self, values: Sequence[NDArray[Any]]) -> Any:
        batch_axes = [int(self.host.time_major and not squeezed) for squeezed in self.host._native.squeezed]
        return self.host._unflatten(self._placement.place(values, batch_axes))

    def __repr__(self) -> str:
        shapes = show_parts(self._root, flatten(self._root, self.data, "a batch"))
        return f"<JaxBatch of {len(self)} items of table {self._signature.table_name!r}: {shapes}>"
