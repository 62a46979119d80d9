"""TorchParts: all that a batch consists of, as arrays, as places in page-locked memory, or as tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.base.cached_property import cached_property
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.decoding import mask_of
from shmreplay.clients.batches.native import ItemNumbers
from shmreplay.columns import structure
from shmreplay.columns.item_structure import node_of, pack_node
from shmreplay.columns.signature import Signature

NUMBERS = ItemNumbers._fields


@dataclass(frozen=True)
class Form:
    """Facts about a batch that are the same wherever its data is.

    Attributes:
        signature: of the table.
        root: the nesting of its outputs.
        squeezed: for each output, whether it has no step axis.
        time_major: as in `Batch`.
        keys: int64 `[B]`, in host memory.
        smallest_probability: the smallest probability of the table's items; 0 if it is unknown, or the same for all.
    """

    signature: Signature
    root: structure.Node
    squeezed: tuple[bool, ...]
    time_major: bool
    keys: NDArray[np.int64]
    smallest_probability: float

    def __reduce__(self) -> tuple[Callable[..., Form], tuple[Any, ...]]:
        """Pickles named tuples by their names and fields, since their classes may exist in this process alone."""
        rest = (self.squeezed, self.time_major, self.keys, self.smallest_probability)
        return _unpickled, (self.signature, pack_node(self.root), *rest)

    @classmethod
    def of(cls, batch: Batch) -> Form:
        """The form of a batch in host memory."""
        native, signature = batch._native, batch._signature
        root = node_of(native.names) if native.names else signature.root
        return cls(
            signature,
            root,
            tuple(native.squeezed),
            batch.time_major,
            batch.keys,
            batch._smallest_probability,
        )


def _unpickled(signature: Signature, names: bytes, *rest: Any) -> Form:
    return Form(signature, node_of(names), *rest)


@dataclass
class TorchParts:
    """The parts of one batch. All but `numbers` have an entry for each output.

    Attributes:
        data: the values; lists, which are never converted, in a table without a signature.
        lengths: int32 `[B]`.
        masks: bool; None: every row is real and has a value.
        sizes: int32; None: the column has a fixed shape.
        numbers: the figures with one number for each item, by their names in NUMBERS.
    """

    data: list[Any]
    lengths: list[Any]
    masks: list[Any]
    sizes: list[Any]
    numbers: dict[str, Any]

    def map(self, convert: Callable[[Any], Any]) -> TorchParts:
        """Returns the parts with each array, place or tensor converted."""

        def convert_all(values: list[Any]) -> list[Any]:
            return [value if value is None or isinstance(value, list) else convert(value) for value in values]

        return TorchParts(
            convert_all(self.data),
            convert_all(self.lengths),
            convert_all(self.masks),
            convert_all(self.sizes),
            {name: convert(value) for name, value in self.numbers.items()},
        )


class BatchParts(TorchParts):
    """The arrays of a batch in host memory. All but `data` are made when they are first read."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.data = [output.data for output in batch._shown]

    @cached_property
    def lengths(self) -> list[Any]:
        """As in `TorchParts`; the properties below as well."""
        return [lengths[: len(self._batch)] for lengths in self._batch._native.lengths]

    @cached_property
    def masks(self) -> list[Any]:
        batch, native = self._batch, self._batch._native
        return [
            None if mask is None and output.has is None else mask_of(batch._counted(mask, squeezed), output, 0)
            for mask, output, squeezed in zip(native.masks, batch._shown, native.squeezed, strict=True)
        ]

    @cached_property
    def sizes(self) -> list[Any]:
        return [output.sizes for output in self._batch._shown]

    @cached_property
    def numbers(self) -> dict[str, Any]:
        return {name: getattr(self._batch, name) for name in NUMBERS}
