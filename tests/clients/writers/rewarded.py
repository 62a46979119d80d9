"""Steps with a reward, ends and a TD error, whose values follow from a number."""

from typing import Any

import shmreplay as sr

SIGNATURE = {
    "observation": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
    "truncated": sr.ArraySpec((), "bool"),
    "td": sr.ArraySpec((), "float64"),
}


def step(k: int, *, terminated: bool = False, truncated: bool = False, td: float = 1.0) -> dict[str, Any]:
    return {"observation": k, "reward": float(k), "terminated": terminated, "truncated": truncated, "td": td}
