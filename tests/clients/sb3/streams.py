"""Streams of transitions as Stable-Baselines3 hands them over, which two buffers are told alike."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Told = tuple[Any, Any, NDArray[Any], NDArray[Any], NDArray[Any], list[dict[str, Any]]]

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 4, 4), np.uint8)
DICT = spaces.Dict({"image": IMAGE, "place": spaces.Discrete(1000), "flags": spaces.MultiBinary(2)})
CONTINUOUS = spaces.Box(-1, 1, (2,), np.float64)
DISCRETE = spaces.Discrete(4)


def stream(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    num_envs: int,
    num_steps: int,
    rng: np.random.Generator,
) -> Iterator[Told]:
    """Steps of some environments: episodes of 1 to 8 steps that terminate or are cut off."""
    observation_space.seed(int(rng.integers(2**31)))
    action_space.seed(int(rng.integers(2**31)))

    def observe() -> list[Any]:
        return [observation_space.sample() for _ in range(num_envs)]

    def stacked(rows: list[Any]) -> Any:
        if isinstance(observation_space, spaces.Dict):
            return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in observation_space.spaces}
        return np.stack([np.asarray(row) for row in rows])

    rows = observe()
    for _ in range(num_steps):
        following = observe()
        actions = np.stack([np.asarray(action_space.sample()) for _ in range(num_envs)])
        how = [str(rng.choice(["", "", "", "terminated", "truncated"])) for _ in range(num_envs)]
        infos = [{"TimeLimit.truncated": end == "truncated"} if end else {} for end in how]
        rewards = rng.normal(size=num_envs).astype(np.float32)
        over = np.array([end != "" for end in how])
        yield stacked(rows), stacked(following), actions, rewards, over, infos
        begun = observe()
        rows = [begun[i] if over[i] else following[i] for i in range(num_envs)]
