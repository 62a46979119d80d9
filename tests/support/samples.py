"""Samples of replay buffers of other libraries, made comparable."""

from typing import Any

from numpy.typing import NDArray


def sorted_rows(samples: Any) -> list[bytes]:
    """All values of each transition of samples, in an order that does not depend on theirs."""
    arrays: list[NDArray[Any]] = []
    for value in samples[:6]:
        parts = value.values() if isinstance(value, dict) else [] if value is None else [value]
        arrays += [part.numpy() for part in parts]
    return sorted(b"".join(array[i].tobytes() for array in arrays) for i in range(len(arrays[0])))
