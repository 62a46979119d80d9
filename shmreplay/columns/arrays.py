"""plain_array: reads what callers pass as an array, and refuses what means more than its numbers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.base.dtypes import is_added
from shmreplay.columns.specs import dtype_of

_SAME_NUMBERS = (np.ndarray, np.memmap)
_BITS = {1: "int8", 2: "int16", 4: "int32"}  # torch's dtypes by bytes


def plain_array(value: Any) -> NDArray[Any]:
    """Returns the numbers of an array, of a list of numbers, or of whatever has `__array__`, such as a tensor.

    The result may share the caller's memory. Tensors of PyTorch may have dtypes that NumPy knows from ml_dtypes. Masked
    arrays may have no value masked.

    Raises:
        TypeError: it is an array of a class that gives its numbers another meaning (masked values, units, matrices);
            the text says what it is and what to do.
        Exception: whatever a foreign `__array__` raises.
    """
    if type(value) is np.ndarray:
        return value
    if (bits := _tensor_bits(value)) is not None:
        return bits
    if isinstance(value, (list, tuple)):
        for part in value:
            if isinstance(part, np.ndarray):
                plain_array(part)
        return np.asarray(value)
    array = np.asanyarray(value)
    if type(array) not in _SAME_NUMBERS:
        _check_class(array)
    return np.asarray(array)


def _check_class(array: NDArray[Any]) -> None:
    if isinstance(array, np.ma.MaskedArray):
        if (count := int(np.count_nonzero(np.ma.getmaskarray(array)))) == 0:
            return
        raise TypeError(
            f"{count} of {array.size} values are masked, and only numbers are stored; fill them, .filled(0), and store "
            "the mask as an array of its own if it is needed"
        )
    name = f"{type(array).__module__}.{type(array).__qualname__}"
    raise TypeError(
        f"it is a {name}, whose numbers may mean something else than those of an array; pass np.asarray(...) of it if "
        "its plain numbers are meant"
    )


def _tensor_bits(value: Any) -> NDArray[Any] | None:
    """The memory of a PyTorch tensor whose dtype NumPy has only from ml_dtypes; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    try:
        dtype = dtype_of(value.dtype)
    except TypeError:  # neither has it
        return None
    if not is_added(dtype):
        return None
    if value.requires_grad:
        raise TypeError("it requires grad; pass its .detach()")
    bits: NDArray[Any] = value.contiguous().view(getattr(torch, _BITS[value.element_size()])).numpy()
    return bits.view(dtype)
