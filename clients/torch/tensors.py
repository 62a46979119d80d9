"""Makes tensors that share numpy arrays' memory, and numpy arrays of tensors on any device."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shmreplay.base.dtypes import is_added


@functools.lru_cache(maxsize=256)
def dtype_of(dtype: np.dtype[Any]) -> torch.dtype:
    """Returns torch's dtype of the same name and bytes.

    Raises:
        TypeError: torch has none; the text says what to do.
    """
    found = getattr(torch, dtype.name, None)
    if not isinstance(found, torch.dtype) or not dtype.isnative:
        raise TypeError(
            f"torch has no tensors of dtype {dtype.name if dtype.isnative else dtype.str}; leave such a column out: "
            "columns=[...]"
        )
    return found


def as_tensor(value: NDArray[Any] | Tensor) -> Tensor:
    """Returns a tensor of the same memory; a copy of a read-only array. Raises TypeError as `dtype_of`."""
    if isinstance(value, Tensor):
        return value
    wanted = dtype_of(value.dtype)
    if not value.flags.writeable:
        value = value.copy()  # torch has no read-only tensors
    if is_added(value.dtype):
        return torch.from_numpy(value.view(f"u{value.dtype.itemsize}")).view(wanted)
    return torch.from_numpy(value)


def on_device(arrays: Any, device: torch.device | str) -> Any:
    """Returns tensors on the device of arrays, or of dicts of them; those of the host share the arrays' memory."""
    if isinstance(arrays, dict):
        return {name: on_device(array, device) for name, array in arrays.items()}
    return torch.as_tensor(arrays, device=device)


def to_host(keys: Any, priorities: Any) -> tuple[Any, Any]:
    """Returns keys and priorities as the table takes them: tensors become arrays in host memory.

    If one or both are on a GPU, they are copied together, and the caller waits once for its stream.
    """
    if isinstance(priorities, Tensor):
        priorities = priorities.detach().reshape(-1)
        if priorities.is_floating_point() and priorities.dtype not in (torch.float32, torch.float64):
            priorities = priorities.float()
    if not isinstance(keys, Tensor):
        return keys, _array(priorities)
    if not isinstance(priorities, Tensor) or keys.device.type == "cpu" or not _can_go_together(keys, priorities):
        return _array(keys), _array(priorities)
    both = torch.stack((keys.reshape(-1), priorities.double().view(torch.int64))).cpu().numpy()
    return both[0], both[1].view(np.float64)


def _can_go_together(keys: Tensor, priorities: Tensor) -> bool:
    is_real = not priorities.is_complex()
    return (
        keys.device == priorities.device and keys.dtype == torch.int64 and keys.numel() == len(priorities) and is_real
    )


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def on_host(tree: Any) -> Any:
    """Returns a nested structure with its tensors as arrays in host memory; all else stays as it is."""
    if isinstance(tree, Tensor):
        return _array(tree)
    if isinstance(tree, Mapping):
        return {key: on_host(value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(on_host, tree))
    return type(tree)(map(on_host, tree)) if type(tree) in (list, tuple) else tree
