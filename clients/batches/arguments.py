"""Checks of arguments that many calls take: counts, keys, priorities, timeouts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay.base.dtypes import as_float64, is_real
from shmreplay.columns.arrays import plain_array

MAX_BATCH = 2**31 - 1


def check_count(where: str, name: str, value: int, high: int = MAX_BATCH) -> int:
    """Returns `value` as an int if it is an integer in 1..high.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is out of range.
    """
    if type(value) is int and 1 <= value <= high:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{where}: {name} is {value!r}; expected an integer")
    if not 1 <= value <= high:
        raise ValueError(f"{where}: {name} is {value}; expected 1 to {high}")
    return int(value)


def key_array(where: str, keys: ArrayLike) -> NDArray[np.int64]:
    """Returns the keys as a contiguous int64 array of one axis. Raises TypeError for another dtype."""
    array = read_array(where, "keys", keys, "int64, as batch.keys and insert give them")
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype != np.int64:
        raise TypeError(f"{where}: keys have dtype {array.dtype}; expected int64, as batch.keys and insert give them")
    return np.ascontiguousarray(array).reshape(-1)


def float_array(where: str, what: str, values: ArrayLike) -> NDArray[np.float64]:
    """Returns real numbers of any dtype, in host memory, as a contiguous float64 array of one axis.

    Raises:
        TypeError: the values cannot be read as an array, or are not real numbers.
    """
    array = read_array(where, what, values, "real numbers in host memory")
    if not is_real(array.dtype):
        raise TypeError(f"{where}: {what} have dtype {array.dtype}; expected real numbers")
    return np.ascontiguousarray(as_float64(array)).reshape(-1)


def read_array(where: str, what: str, values: ArrayLike, expected: str) -> NDArray[Any]:
    """Returns what a caller passed as an array, as `plain_array` reads it. Raises TypeError if it cannot be read."""
    try:
        return plain_array(values)
    except (TypeError, RuntimeError, ValueError) as error:
        raise TypeError(f"{where}: {what} cannot be read as an array ({error}); expected {expected}") from error


def priority_array(where: str, priorities: ArrayLike, num_keys: int) -> NDArray[np.float64]:
    """Returns the priorities of `num_keys` keys, given as `[num_keys]` or `[num_keys, 1]`, as float64 `[num_keys]`.

    Raises:
        TypeError: as `float_array`.
        ValueError: there are not as many priorities as keys.
    """
    values = float_array(where, "priorities", priorities)
    if len(values) != num_keys:
        raise ValueError(
            f"{where}: priorities have shape {tuple(np.shape(priorities))}, which is {len(values)} for {num_keys} "
            f"keys; expected one a key, [{num_keys}] or [{num_keys}, 1]"
        )
    return values


def check_timeout(timeout_s: float | None) -> float | None:
    """Returns the seconds to wait, or None for no limit.

    Raises:
        TypeError: `timeout_s` is not a number.
        ValueError: it is below 0, or nan.
    """
    if timeout_s is None:
        return None
    text = f"timeout_s is {timeout_s!r:.100}; expected seconds >= 0, or None to wait for ever"
    if isinstance(timeout_s, (str, bytes)):
        raise TypeError(text)
    try:
        seconds = float(timeout_s)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(text) from error
    if not seconds >= 0:
        raise ValueError(text)
    return timeout_s
