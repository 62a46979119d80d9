"""Leaves of a signature: columns with their paths, and the foreign specs that can stand for an ArraySpec."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shmreplay.specs import ArraySpec


@dataclass(frozen=True)
class Leaf:
    """One column of a signature.

    Attributes:
        path: where it is in the signature, such as `observation/camera[0]`; `step` where the signature is one column.
        spec: shape, dtype and rules of the column.
        index: its number, counted depth first.
    """

    path: str
    spec: ArraySpec
    index: int


def as_spec(leaf: object, where: str) -> ArraySpec:
    """Returns the ArraySpec that a leaf of a signature tree stands for.

    Taken are an ArraySpec, a numpy dtype or scalar type (a scalar column), and anything that has `.shape` and `.dtype`:
    numpy arrays, gymnasium's Box, Discrete, MultiDiscrete and MultiBinary, dm_env's specs, tensors and their specs.

    Raises:
        TypeError: it is none of these, or of a dtype that shared memory cannot hold.
        ValueError: its shape is negative, or it asks for what is not supported yet.
    """
    try:
        spec = _read(leaf)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from error
    if option := spec.unsupported():
        raise ValueError(f"{where}: not supported yet: {option}")
    return spec


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
