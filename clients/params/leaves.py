"""The leaves of a published tree: arrays and tensors, as arrays in host memory to read or write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.columns.arrays import plain_array
from shmreplay.columns.conversion import Missing
from shmreplay.errors import SignatureMismatch


def to_host(leaf: Any) -> Any:
    """The leaf as an insert takes it: a tensor is detached from its graph and, if on a GPU, copied to the host."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return leaf
    if callable(detach := getattr(leaf, "detach", None)):
        leaf = detach()
    if getattr(leaf, "is_cuda", False) is True:
        leaf = leaf.cpu()
    return leaf


def writable(leaf: Any, like: NDArray[Any], at: str) -> NDArray[Any]:
    """The leaf's own memory as a writable array of `like`'s dtype and shape.

    Raises:
        SignatureMismatch: there is no such leaf.
        TypeError: the leaf is neither an array nor a tensor in host memory.
        ValueError: it has another dtype or shape, or is read-only.
    """
    expected = f"expected a writable array or tensor in host memory, {like.dtype} {like.shape}"
    if isinstance(leaf, Missing):
        raise SignatureMismatch(f"{at} is missing; {expected}")
    held = leaf.detach() if callable(getattr(leaf, "detach", None)) else leaf
    # A NumPy scalar, the result of arithmetic with arrays without axes, is refused: `asarray` would copy it.
    if isinstance(held, np.generic) or not hasattr(held, "__array__") or getattr(held, "is_cuda", False) is True:
        raise TypeError(f"{at} is {type(leaf).__name__}; {expected}")
    target = plain_array(held)
    if target.dtype != like.dtype or target.shape != like.shape:
        raise ValueError(f"{at} is {target.dtype} {target.shape}; {expected}")
    if not target.flags.writeable:
        raise ValueError(f"{at} is read-only; {expected}")
    return target
