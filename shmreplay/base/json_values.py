"""Converts values to JSON, in the same way for everything that is printed or served."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from shmreplay.base.dtypes import plain_number
from shmreplay.base.waiting import NO_LIMIT

_BOUNDS = ("min_diff", "max_diff")


def to_json(value: Any, indent: int | None = 2) -> str:
    """Returns JSON text. Values may have NumPy arrays and numbers, and numbers that JSON lacks, such as nan."""
    return json.dumps(json_value(value), indent=indent, allow_nan=False)


def json_value(value: Any) -> Any:
    """Returns plain JSON values: null for numbers that are not finite, and for a missing bound of a rate limiter.

    Complex numbers, and long doubles beyond a float's range, become text.
    """
    if isinstance(value, dict):
        return {str(name): None if _is_no_bound(name, part) else json_value(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return json_value(value.tolist())
    if isinstance(value, (list, tuple)):
        return [json_value(part) for part in value]
    if isinstance(value, np.generic):
        return json_value(plain_number(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _is_no_bound(name: object, value: object) -> bool:
    return name in _BOUNDS and isinstance(value, float) and abs(value) > NO_LIMIT
