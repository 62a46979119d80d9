"""Leaves of a published tree: arrays, and tensors by what they can do, read and written in host memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.columns.conversion import Missing
from shmreplay.errors import SignatureMismatch


def to_host(leaf: Any) -> Any:
    """The leaf as an insert takes it: a tensor detached from its graph and, if it is elsewhere, copied to the host."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return leaf
    if callable(detach := getattr(leaf, "detach", None)):
        leaf = detach()
    if getattr(leaf, "is_cuda", False) is True:
        leaf = leaf.cpu()
    return leaf


def writable(leaf: Any, like: NDArray[Any], at: str) -> NDArray[Any]:
    """The leaf as an array of `like`'s dtype and shape that can be written into: its own memory.

    Raises:
        SignatureMismatch: there is none.
        TypeError: it is neither an array nor a tensor in host memory.
        ValueError: it has another dtype or shape, or can not be written.
    """
    expected = f"expected a writable array or tensor in host memory, {like.dtype} {like.shape}"
    if isinstance(leaf, Missing):
        raise SignatureMismatch(f"{at} is missing; {expected}")
    held = leaf.detach() if callable(getattr(leaf, "detach", None)) else leaf
    # Of a number, such as numpy's arithmetic makes of an array without axes, `asarray` would be a copy.
    if isinstance(held, np.generic) or not hasattr(held, "__array__") or getattr(held, "is_cuda", False) is True:
        raise TypeError(f"{at} is {type(leaf).__name__}; {expected}")
    target: NDArray[Any] = np.asarray(held)
    if target.dtype != like.dtype or target.shape != like.shape:
        raise ValueError(f"{at} is {target.dtype} {target.shape}; {expected}")
    if not target.flags.writeable:
        raise ValueError(f"{at} is read-only; {expected}")
    return target
