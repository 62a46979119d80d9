"""Leaves of a signature: columns with their paths; and conversion of other libraries' specs to ArraySpec."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shmreplay.base.cached_property import cached_property
from shmreplay.columns.codecs import ArrayCodec
from shmreplay.columns.specs import ArraySpec
from shmreplay.columns.step_codec import StepCodec

# The same values as in the core.
HEAP, MUTABLE, PER_ITEM = 1, 2, 4
DESCRIPTOR_BYTES = 8
EXPECTED_PLAIN = "a plain column, neither compressed, of variable shape, optional, mutable nor per item"
_VERSION_BYTES = 8


@dataclass(frozen=True)
class Leaf:
    """One column of a signature.

    Attributes:
        path: where it is in the signature, such as `observation/camera[0]`; `step` where the signature is one column.
        spec: shape, dtype and rules of the column.
        index: its number, counted depth first.
        is_whole_step: whether it is a whole step of any structure, in a table without a signature; `spec` is then that
            of the encoded bytes.
    """

    path: str
    spec: ArraySpec
    index: int
    is_whole_step: bool = False

    @property
    def flags(self) -> int:
        """The kind of column, as a number of the core."""
        if self.spec.is_per_item:
            return PER_ITEM
        return HEAP if self.spec.in_heap else MUTABLE if self.spec.mutable else 0

    @property
    def row_bytes(self) -> int:
        """Bytes in a row of a chunk: of the value, or of the descriptor of its place in the heap."""
        if self.spec.is_per_item:
            return 0
        return DESCRIPTOR_BYTES if self.spec.in_heap else self.spec.row_bytes

    @property
    def packed_bytes(self) -> int:
        """Bytes of a row, if the core compresses it; otherwise 0."""
        return self.spec.row_bytes if self.spec.is_packed else 0

    @property
    def stride(self) -> int:
        """Bytes from one row of a chunk to the next. A mutable column has two copies and a version word."""
        if not self.spec.mutable:
            return self.row_bytes
        return _VERSION_BYTES + 2 * -(-self.row_bytes // 8) * 8

    @cached_property
    def codec(self) -> ArrayCodec | StepCodec:
        """The codec of a column in the heap. The core itself encodes packed columns."""
        return StepCodec() if self.is_whole_step else ArrayCodec(self.spec)

    def __str__(self) -> str:
        """What it accepts, for error texts."""
        return "a step of any structure" if self.is_whole_step else str(self.spec)


def as_spec(leaf: object, where: str) -> ArraySpec:
    """Returns the ArraySpec that a leaf of a signature tree stands for.

    Accepts an ArraySpec, a numpy dtype or scalar type (a scalar column), and anything that has `.shape` and `.dtype`:
    numpy arrays, gymnasium's Box, Discrete, MultiDiscrete and MultiBinary, dm_env's specs, tensors and their specs.

    Raises:
        TypeError: it is none of these, or its dtype cannot be in shared memory.
        ValueError: its shape has a negative size.
    """
    try:
        return _read(leaf)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from error


def _read(leaf: object) -> ArraySpec:
    if isinstance(leaf, ArraySpec):
        return leaf
    if isinstance(leaf, np.dtype) or (isinstance(leaf, type) and issubclass(leaf, np.generic)):
        return ArraySpec((), leaf)
    if isinstance(leaf, type) or not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        raise TypeError(
            f"{leaf!r:.100} is not a column; expected an ArraySpec(shape, dtype), a gymnasium space, or "
            "anything else with .shape and .dtype"
        )
    shape, dtype = leaf.shape, leaf.dtype
    if shape is None:
        raise TypeError(f"{type(leaf).__name__} has no fixed shape; expected an ArraySpec(shape, dtype)")
    return ArraySpec(shape, dtype)
