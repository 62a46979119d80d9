"""Leaves of a signature: columns with their paths, and the foreign specs that can stand for an ArraySpec."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shmreplay.columns.codecs import ArrayCodec
from shmreplay.columns.specs import ArraySpec
from shmreplay.columns.step_codec import StepCodec

# As the core has them.
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
        is_whole_step: whether it stands for steps of any structure, in a table without a signature; `spec` is then that
            of the bytes that describe them.
    """

    path: str
    spec: ArraySpec
    index: int
    is_whole_step: bool = False

    @property
    def flags(self) -> int:
        """What kind of column it is, as the core has it."""
        if self.spec.is_per_item:
            return PER_ITEM
        return HEAP if self.spec.in_heap else MUTABLE if self.spec.mutable else 0

    @property
    def row_bytes(self) -> int:
        """Bytes of what stands in a row of a chunk: the value, or a descriptor of where it is in the heap."""
        if self.spec.is_per_item:
            return 0
        return DESCRIPTOR_BYTES if self.spec.in_heap else self.spec.row_bytes

    @property
    def packed_bytes(self) -> int:
        """Bytes of a row that the core compresses; 0 of other columns."""
        return self.spec.row_bytes if self.spec.is_packed else 0

    @property
    def stride(self) -> int:
        """Bytes from one row of a chunk to the next. A mutable column has two copies and a version word."""
        if not self.spec.mutable:
            return self.row_bytes
        return _VERSION_BYTES + 2 * -(-self.row_bytes // 8) * 8

    @cached_property
    def codec(self) -> ArrayCodec | StepCodec:
        """Makes bytes of the values of a column in the heap, and values of bytes; not of a packed one's rows."""
        return StepCodec() if self.is_whole_step else ArrayCodec(self.spec)

    def __str__(self) -> str:
        """What it takes, for error texts."""
        return "a step of any structure" if self.is_whole_step else str(self.spec)


def as_spec(leaf: object, where: str) -> ArraySpec:
    """Returns the ArraySpec that a leaf of a signature tree stands for.

    Taken are an ArraySpec, a numpy dtype or scalar type (a scalar column), and anything that has `.shape` and `.dtype`:
    numpy arrays, gymnasium's Box, Discrete, MultiDiscrete and MultiBinary, dm_env's specs, tensors and their specs.

    Raises:
        TypeError: it is none of these, or of a dtype that shared memory cannot hold.
        ValueError: its shape is negative.
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
