"""The steps that all workloads write: five columns, with about as many bytes as their name says. Needs only NumPy."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, tuple[tuple[int, ...], str]]  # name -> shape, dtype

CACHED_BYTES = 2**20  # of different steps that a writer uses in turn, so few that they stay in its caches
MAX_STEPS = 256


@dataclasses.dataclass(frozen=True)
class Layout:
    """Steps of two arrays and three scalars. By default, the arrays are a quarter and three quarters of the bytes.

    Attributes:
        name: the size in words.
        observation: number of float32 values in the smaller array.
        times: size of the other array, as a multiple of that.
    """

    name: str
    observation: int
    times: int = 3

    @property
    def columns(self) -> Columns:
        return {
            "observation": ((self.observation,), "float32"),
            "action": ((), "int64"),
            "reward": ((), "float32"),
            "terminated": ((), "bool"),
            "next_observation": ((self.times * self.observation,), "float32"),
        }

    @property
    def column_bytes(self) -> tuple[int, ...]:
        return tuple(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in self.columns.values())

    @property
    def step_bytes(self) -> int:
        return sum(self.column_bytes)

    @property
    def num_steps(self) -> int:
        """Number of different steps that a writer uses in turn."""
        return max(4, min(MAX_STEPS, CACHED_BYTES // self.step_bytes))

    def items(self, wanted: int) -> int:
        """How many items take the memory of `wanted` small ones; at least enough for some batches."""
        return min(wanted, max(64, wanted * SMALL.step_bytes // self.step_bytes))

    def stacked(self, n: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """n steps of random numbers as a batch: arrays `[n, *shape]`."""
        return {
            "observation": rng.random((n, self.observation), np.float32),
            "action": rng.integers(0, 18, n),
            "reward": rng.random(n, np.float32),
            "terminated": rng.random(n) < 0.01,
            "next_observation": rng.random((n, self.times * self.observation), np.float32),
        }

    def separate(self, n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
        """n steps as an actor has them: separate arrays, Python numbers and bools."""
        rows = self.stacked(n, rng)
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


SMALL = Layout("400 B", 24)  # 397 bytes, since a bool is one
LAYOUTS = {"400B": SMALL, "4kB": Layout("4 kB", 249), "40kB": Layout("40 kB", 2499), "400kB": Layout("400 kB", 24999)}
# Two arrays of equal size, for buffers that store transitions.
TRANSITIONS = {"transition 400B": Layout("400 B", 48, 1), "transition 40kB": Layout("40 kB", 4998, 1)}
