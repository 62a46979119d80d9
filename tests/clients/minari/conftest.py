"""Data sets of Minari that the tests make, in a folder of their own: nothing is downloaded."""

import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("minari", reason="minari is not installed")

import minari
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

MakeDataset = Callable[..., Any]

OBSERVATION = spaces.Dict(
    {
        "place": spaces.Box(-1, 1, (3,), np.float64),
        "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        "flags": spaces.Tuple([spaces.Discrete(5), spaces.MultiBinary(2)]),
    }
)
ACTION = spaces.Box(-1, 1, (2,), np.float32)


def episode(number: int, num_steps: int, end: str, rng: np.random.Generator, **more: Any) -> EpisodeBuffer:
    """An episode that "terminated", was "truncated", or ends by neither flag."""
    over = np.arange(num_steps) == num_steps - 1
    never = np.zeros(num_steps, np.bool_)
    observations = {
        "place": rng.random((num_steps + 1, 3)),
        "image": rng.integers(0, 256, (num_steps + 1, 8, 8, 3)).astype(np.uint8),
        "flags": (rng.integers(0, 5, num_steps + 1), rng.integers(0, 2, (num_steps + 1, 2)).astype(np.int8)),
    }
    return EpisodeBuffer(
        id=number,
        observations=observations,
        actions=rng.random((num_steps, 2)).astype(np.float32),
        rewards=rng.random(num_steps),
        terminations=over if end == "terminated" else never,
        truncations=over if end == "truncated" else never,
        **more,
    )


@pytest.fixture
def make_dataset(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> MakeDataset:
    """Makes a data set of so many episodes of 1 to 30 steps."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def make(name: str, num_episodes: int = 20, **more: Any) -> Any:
        ends = ["terminated", "truncated", ""]
        episodes = [episode(i, int(rng.integers(1, 31)), ends[i % 3], rng, **more) for i in range(num_episodes)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of metadata that are not given
            return minari.create_dataset_from_buffers(
                name, episodes, observation_space=OBSERVATION, action_space=ACTION, jpeg_encoding=False
            )

    return make


def parts_of(data: Any) -> list[Any]:
    """The arrays of an episode, in one list."""
    if isinstance(data, dict):
        return [array for name in sorted(data) for array in parts_of(data[name])]
    if isinstance(data, tuple):
        return [array for part in data for array in parts_of(part)]
    return [data]


def assert_equal_episodes(ours: Any, theirs: Any) -> None:
    """All arrays of two episodes are the same, to the byte and the dtype."""
    for name in ("observations", "actions", "rewards", "terminations", "truncations"):
        for found, expected in zip(parts_of(getattr(ours, name)), parts_of(getattr(theirs, name)), strict=True):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
            np.testing.assert_array_equal(found, expected)
