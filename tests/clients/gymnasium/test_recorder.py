"""Recorder: one environment."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import shmreplay as sr
from shmreplay.clients.gymnasium import Recorder, signature, text
from tests.clients.gymnasium.conftest import Counting, actions_of, expected, transitions


def play(env: gym.Env[Any, Any], steps: int) -> None:
    """Steps an environment that was reset, and resets it at the end of each episode."""
    observation = {"where": np.array([0, env.unwrapped.episode, 0])}  # type: ignore[attr-defined]
    for _ in range(steps):
        observation, _, terminated, truncated, _ = env.step(actions_of(observation["where"]))
        if terminated or truncated:
            observation, _ = env.reset()


def chosen(episode: int, step: int) -> list[int]:
    return [episode % 10, step % 20]


def test_every_step_is_a_row_with_the_observation_it_was_chosen_for(table_of: Callable[..., Any]) -> None:
    env = Counting()
    table = table_of(signature(env))
    with table.writer() as writer:
        recorded = Recorder(env, writer)
        recorded.reset()
        play(recorded, 12)
    assert transitions(table) == expected(0, 4, 3, chosen)


def test_an_episode_that_is_broken_off_ends_with_the_observation_there_was(table_of: Callable[..., Any]) -> None:
    env = Counting()
    table = table_of(signature(env))
    with table.writer() as writer:
        recorded = Recorder(env, writer)
        recorded.reset()
        recorded.step(np.array([0, 0]))
        recorded.step(np.array([0, 1]))
        recorded.reset()
        recorded.step(np.array([1, 0]))
        recorded.close()
    found = transitions(table)
    assert [(episode, step, following) for _, episode, step, _, _, following, _, _ in found] == [
        (0, 0, 1),
        (0, 1, 2),
        (1, 0, 1),
    ]
    assert not any(terminated or truncated for *_, terminated, truncated in found)


def test_an_environment_that_raises_in_a_step_leaves_an_episode_that_ends_before_it(
    table_of: Callable[..., Any],
) -> None:
    class Breaking(Counting):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            if self.episode == 0 and self.at == 2:
                raise RuntimeError("the simulator fell over")
            return super().step(action)

    env = Breaking()
    table = table_of(signature(env))
    with table.writer() as writer:
        recorded = Recorder(env, writer)
        recorded.reset()
        recorded.step(np.array([0, 0]))
        recorded.step(np.array([0, 1]))
        with pytest.raises(RuntimeError, match="fell over"):
            recorded.step(np.array([0, 2]))
        recorded.reset()
        play(recorded, 3)
    assert transitions(table) == expected(0, 1, 3, chosen)[:2] + expected(0, 2, 3, chosen)[3:]


def test_a_table_without_some_columns_gets_the_others_and_its_own_are_put(table_of: Callable[..., Any]) -> None:
    env = Counting()
    columns = signature(env, log_prob=sr.ArraySpec((), "float32"))
    del columns["truncated"], columns["reward"]
    table = table_of(columns)
    with table.writer() as writer:
        recorded = Recorder(env, writer)
        recorded.reset()
        for k in range(3):
            recorded.put(log_prob=-k)
            recorded.step(np.array([0, k]))
    batch = table.get(np.sort(table.keys()))
    assert batch.data["log_prob"].tolist() == [0, -1, -2]
    assert "reward" not in batch.data


def test_a_column_that_is_not_the_callers_own_can_not_be_put(table_of: Callable[..., Any]) -> None:
    env = Counting()
    table = table_of(signature(env, log_prob=sr.ArraySpec((), "float32")))
    with table.writer() as writer:
        recorded = Recorder(env, writer)
        for name in ("reward", "logprob"):
            with pytest.raises(sr.SignatureMismatch, match=rf"put\({name}=.*the table has log_prob"):
                recorded.put(**{name: 1.0})


def test_a_table_without_observations_is_refused(table_of: Callable[..., Any]) -> None:
    table = table_of({"obs": sr.ArraySpec((), "int64")}, item=sr.Sequence(1))
    with table.writer() as writer, pytest.raises(sr.SignatureMismatch, match="writes steps with an 'observation'"):
        Recorder(Counting(), writer)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3), np.float32),
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiBinary([2, 2]),
        spaces.Text(7),
        spaces.Dict({"a": spaces.Text(4), "b": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float64)])}),
        spaces.Tuple([spaces.Text(3), spaces.Dict({"x": spaces.Discrete(2)})]),
    ],
    ids=repr,
)
def test_values_of_every_bounded_space_come_back_as_they_went_in(
    table_of: Callable[..., Any], space: spaces.Space[Any]
) -> None:
    class Sampling(gym.Env[Any, Any]):
        observation_space = space
        action_space = space

        def __init__(self) -> None:
            self.given: list[Any] = []

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            self.given.append(space.sample())
            return self.given[-1], {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.given.append(space.sample())
            return self.given[-1], 0.0, False, False, {}

    space.seed(3)
    env = Sampling()
    table = table_of(signature(env))
    acted = []
    with table.writer() as writer:
        recorded = Recorder(env, writer)
        recorded.reset()
        for _ in range(5):
            acted.append(space.sample())
            recorded.step(acted[-1])
        recorded.close()
    data = table.get(np.sort(table.keys())).data
    for i in range(5):
        assert_same(space, row_of(data["observation"], i), env.given[i])
        assert_same(space, row_of(data["next_observation"], i), env.given[i + 1])
        assert_same(space, row_of(data["action"], i), acted[i])


def row_of(data: Any, i: int) -> Any:
    if isinstance(data, dict):
        return {name: row_of(part, i) for name, part in data.items()}
    if isinstance(data, tuple):
        return tuple(row_of(part, i) for part in data)
    return data[i]


def assert_same(space: spaces.Space[Any], found: Any, wanted: Any) -> None:
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            assert_same(part, found[name], wanted[name])
    elif isinstance(space, spaces.Tuple):
        for part, one, other in zip(space.spaces, found, wanted, strict=True):
            assert_same(part, one, other)
    elif isinstance(space, spaces.Text):
        assert text(found) == wanted
    else:
        assert np.array_equal(found, wanted)
        assert np.asarray(found).dtype == space.dtype


@pytest.mark.parametrize(
    "space", [spaces.Sequence(spaces.Discrete(3)), spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)])]
)
def test_a_space_of_no_fixed_size_is_refused_by_its_path(space: spaces.Space[Any]) -> None:
    class Odd(Counting):
        observation_space = spaces.Dict({"inner": space})

    with pytest.raises(
        TypeError, match=r"signature: observation/inner is .*expected spaces of one structure and fixed size"
    ):
        signature(Odd())


def test_a_column_of_more_can_not_take_the_name_of_one_of_the_environments() -> None:
    with pytest.raises(ValueError, match="'reward' is a column of the environment's"):
        signature(Counting(), reward=sr.ArraySpec((), "float64"))
