"""Layout: the columns of transitions of two spaces, and what a library hands over as arrays of these columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shmreplay.columns.specs import ArraySpec

Observation = Any  # an array [N, *shape], or a dict of them


@dataclass(frozen=True)
class Part:
    """An observation, or an entry of a dict of them: its shape, dtype, and the frames that lie along its first axis."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    frames: int = 1

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """The shape of what is stored of it: the newest frame."""
        return self.shape if self.frames == 1 else (self.shape[0] // self.frames, *self.shape[1:])

    def whole(self, value: Any, num: int) -> NDArray[Any]:
        """The array `[num, *shape]` of what was handed over."""
        if type(value) is np.ndarray and value.dtype == self.dtype and value.shape == (num, *self.shape):
            return np.ascontiguousarray(value)
        return np.ascontiguousarray(np.asarray(value, self.dtype).reshape(num, *self.shape))

    def newest(self, whole: NDArray[Any]) -> NDArray[Any]:
        """The newest frames of whole stacks."""
        return whole if self.frames == 1 else whole[:, -self.frame_shape[0] :]

    def shown(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Whole stacks `[B, *shape]`, of the frames `[B, frames, *frame_shape]` of a batch."""
        return stored if self.frames == 1 else stored.reshape(len(stored), *self.shape)


class Layout:
    """Reads two spaces of gymnasium, by their attributes alone.

    Args:
        observation_space: one of a fixed shape (Box, Discrete, MultiDiscrete, MultiBinary), or a Dict of such.
        action_space: one of a fixed shape; actions are stored flat.
        frames: how many frames an observation has along its first axis. Only the newest one is stored.
        compression: of observations, as in `ArraySpec`.

    Raises:
        TypeError: a space has no fixed shape.
        ValueError: `frames` does not divide the first axis, or is given for a Dict.
    """

    def __init__(
        self, observation_space: Any, action_space: Any, frames: int = 1, compression: str | None = None
    ) -> None:
        self._compression = compression
        entries = getattr(observation_space, "spaces", None)
        self.parts: Part | dict[str, Part]
        if isinstance(entries, Mapping):
            if frames != 1:
                raise ValueError(
                    f"frames is {frames}, but observations are a dict; expected 1: each entry is stored whole"
                )
            self.parts = {name: _part(space, f"observation space, {name!r}") for name, space in entries.items()}
        else:
            self.parts = _part(observation_space, "observation space", frames)
        action = _part(action_space, "action space")
        self.action_dim = math.prod(action.shape)
        # SB3 stores actions of float64 as float32, too
        self.action_dtype: DTypeLike = np.float32 if action.dtype == np.float64 else action.dtype

    def signature(self) -> dict[str, Any]:
        """The columns of a table."""
        flag = ArraySpec((), "bool")
        return {
            "observation": self.of_parts(
                lambda part: ArraySpec(part.frame_shape, part.dtype, compression=self._compression)
            ),
            "action": ArraySpec((self.action_dim,), self.action_dtype),
            "reward": ArraySpec((), "float32"),
            "terminated": flag,
            "truncated": flag,
        }

    def of_parts(self, make: Any, *values: Any) -> Any:
        """`make(part, value, ...)` for the observation, or for each entry of a dict of them."""
        if isinstance(self.parts, Part):
            return make(self.parts, *values)
        return {name: make(part, *(value[name] for value in values)) for name, part in self.parts.items()}

    def whole(self, observation: Observation, num: int) -> Observation:
        """The observations of N environments, as arrays of the spaces' dtypes and shapes."""
        if isinstance(self.parts, Part):
            return self.parts.whole(observation, num)
        return {name: part.whole(observation[name], num) for name, part in self.parts.items()}

    def newest(self, whole: Observation) -> Observation:
        """What is stored of them."""
        return self.parts.newest(whole) if isinstance(self.parts, Part) else whole

    def shown(self, stored: Observation) -> Observation:
        """The observations of a batch, as the library hands them over."""
        return self.parts.shown(stored) if isinstance(self.parts, Part) else stored

    def arrays(self, whole: Observation) -> list[NDArray[Any]]:
        """The arrays of observations, in one list."""
        return [whole] if isinstance(self.parts, Part) else [whole[name] for name in self.parts]

    def action(self, action: Any, num: int) -> NDArray[Any]:
        """Actions of N environments, flat."""
        if type(action) is np.ndarray and action.dtype == self.action_dtype and action.shape == (num, self.action_dim):
            return np.ascontiguousarray(action)
        return np.ascontiguousarray(np.asarray(action, self.action_dtype).reshape(num, self.action_dim))


def _part(space: Any, where: str, frames: int = 1) -> Part:
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape is None or dtype is None or np.dtype(dtype).kind not in "biuf":
        raise TypeError(
            f"{where} is {space!r:.100}; expected one of a fixed shape: Box, Discrete, MultiDiscrete or MultiBinary; "
            "as the observation space also a Dict of these. Wrap the environment"
        )
    shape = tuple(int(size) for size in shape) or (1,)
    if frames < 1 or shape[0] % frames != 0:
        raise ValueError(f"frames is {frames}, but an observation has shape {shape}; expected a divisor of {shape[0]}")
    return Part(shape, np.dtype(dtype), frames)
