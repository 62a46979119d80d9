"""Environments that count: every observation says which environment, episode and step it is of."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

import shmreplay as sr

OBSERVATION = spaces.Dict(
    {
        "where": spaces.Box(-1, 1e6, (3,), np.float32),
        "flags": spaces.MultiBinary(2),
        "parts": spaces.Tuple([spaces.Discrete(1000)]),
    }
)


class Counting(gym.Env[Any, Any]):
    """Observation `where` is [number, episode, step]. Episodes have `length` steps; every other one terminates.

    With `reuses` the array is the same one each time, as some simulators have it.
    """

    observation_space = OBSERVATION
    action_space = spaces.MultiDiscrete([10, 20])

    def __init__(self, number: int = 0, length: int = 3, reuses: bool = True) -> None:
        self.number, self.length, self._reuses = number, length, reuses
        self.episode, self.at = -1, 0
        self._where = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.at = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        over = self.at == self.length
        terminates = self.episode % 2 == 0
        return self._observe(), float(10 * self.episode + self.at), over and terminates, over and not terminates, {}

    def _observe(self) -> Any:
        if not self._reuses:
            self._where = np.zeros(3, np.float32)
        self._where[:] = self.number, self.episode, self.at
        return {"where": self._where, "flags": np.array([self.at % 2, 1], np.int8), "parts": (self.at,)}


@pytest.fixture
def table_of() -> Iterator[Callable[..., Any]]:
    """Makes a table of transitions of an environment's steps, on its own server."""
    with sr.Server([]) as server, server.client() as client:

        def make(signature: Any, item: Any = None, **options: Any) -> Any:
            client.create_tables([sr.Table("steps", signature, 1000, item=item or sr.Transition(), **options)])
            return client.table("steps")

        yield make


Row = tuple[Any, ...]  # number, episode, step, action, reward, next step, terminated, truncated


def transitions(table: Any) -> list[Row]:
    """Every item of the table, in the order in which they went in."""
    data = table.get(np.sort(table.keys())).data
    now, then = (data[name]["where"].astype(int) for name in ("observation", "next_observation"))
    assert np.array_equal(now[:, :2], then[:, :2]), "a transition crosses an episode or an environment"
    columns = (data["action"], data["reward"], then[:, 2], data["terminated"], data["truncated"])
    return [(*now[i].tolist(), *(column[i].tolist() for column in columns)) for i in range(len(now))]


def expected(number: int, episodes: int, length: int, action: Callable[[int, int], list[int]]) -> list[Row]:
    """What whole episodes of a counting environment make."""
    return [
        (
            number,
            e,
            t,
            action(e, t),
            float(10 * e + t + 1),
            t + 1,
            t + 1 == length and e % 2 == 0,
            t + 1 == length and e % 2 == 1,
        )
        for e in range(episodes)
        for t in range(length)
    ]


def actions_of(observation: NDArray[Any]) -> NDArray[np.int64]:
    """An action that says which observation it was chosen for."""
    return np.stack([observation[..., 1] % 10, observation[..., 2] % 20], axis=-1).astype(np.int64)
