"""The steps that all workloads write: five columns, 400 bytes (397, since a bool is one)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import shmreplay as sr

SIGNATURE = {
    "observation": sr.ArraySpec((24,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
    "next_observation": sr.ArraySpec((72,), "float32"),
}
COLUMN_BYTES = tuple(spec.row_bytes for spec in SIGNATURE.values())
STEP_BYTES = sum(COLUMN_BYTES)
NUM_STEPS = 256  # different ones that a writer goes round, as many as a batch: 100 kB, which an actor has in its caches


def stacked(n: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """n steps of random numbers, as `insert_batch` takes them: arrays `[n, *shape]`."""
    return {
        "observation": rng.random((n, 24), np.float32),
        "action": rng.integers(0, 18, n),
        "reward": rng.random(n, np.float32),
        "terminated": rng.random(n) < 0.01,
        "next_observation": rng.random((n, 72), np.float32),
    }


def separate(n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """n steps, as an actor has them: arrays of their own, Python's numbers and bools."""
    rows = stacked(n, rng)
    return [
        {
            "observation": rows["observation"][i].copy(),
            "action": int(rows["action"][i]),
            "reward": float(rows["reward"][i]),
            "terminated": bool(rows["terminated"][i]),
            "next_observation": rows["next_observation"][i].copy(),
        }
        for i in range(n)
    ]
