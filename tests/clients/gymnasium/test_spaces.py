"""spaces: signatures of environments, and of two spaces without one."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import shmreplay as sr
from shmreplay.clients.gymnasium import signature, signature_of_spaces


def test_two_spaces_have_the_signature_of_their_environment() -> None:
    env: Any = gym.make("CartPole-v1")
    assert signature_of_spaces(env.observation_space, env.action_space) == signature(env)
    envs = gym.make_vec("CartPole-v1", num_envs=2)
    assert signature_of_spaces(envs.single_observation_space, envs.single_action_space) == signature(envs)
    env.close()
    envs.close()


def test_spaces_nest_and_columns_of_the_caller_s_own_come_along() -> None:
    observation = spaces.Dict({"image": spaces.Box(0, 255, (4, 4), np.uint8), "goal": spaces.Discrete(3)})
    log_prob = sr.ArraySpec((), "float32")
    found = signature_of_spaces(observation, spaces.MultiBinary(2), log_prob=log_prob)
    assert found["observation"] == {"image": sr.ArraySpec((4, 4), "uint8"), "goal": sr.ArraySpec((), "int64")}
    assert found["action"] == sr.ArraySpec((2,), "int8")
    assert found["log_prob"] is log_prob


def test_a_space_without_one_shape_is_refused_by_its_path() -> None:
    observation = spaces.Dict({"words": spaces.Sequence(spaces.Discrete(3))})
    with pytest.raises(TypeError, match=r"observation/words is Sequence"):
        signature_of_spaces(observation, spaces.Discrete(2))
    with pytest.raises(ValueError, match=r"'reward' is a column of the environment's"):
        signature_of_spaces(spaces.Discrete(2), spaces.Discrete(2), reward=sr.ArraySpec((), "float32"))
