"""ReplayBuffer of CleanRL's scripts: what their way of adding stores is what was told, with truncations found."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import gymnasium as gym
import torch
from gymnasium import spaces

import shmreplay as sr
from shmreplay.clients.cleanrl import ReplayBuffer
from tests.support.samples import sorted_rows


def all_of(buffer: ReplayBuffer) -> Any:
    """All transitions, by a draw of each once."""
    buffer.flush()
    batch = buffer.table.get(buffer.table.keys())
    buffer._transitions.draw = lambda num: batch  # type: ignore[method-assign]
    return buffer.sample(len(batch))


@pytest.mark.parametrize("num_envs", [1, 3])
def test_the_loop_of_the_scripts_stores_what_it_tells(server: sr.Server, num_envs: int) -> None:
    """As their loops do: `done` has terminations alone, `infos` is a dict, and truncations are not told."""
    mode = gym.vector.AutoresetMode.SAME_STEP
    envs: Any = gym.vector.SyncVectorEnv(
        [lambda: gym.make("Pendulum-v1", max_episode_steps=7)] * num_envs, autoreset_mode=mode
    )
    buffer = ReplayBuffer(
        300,
        envs.single_observation_space,
        envs.single_action_space,
        torch.device("cpu"),
        n_envs=num_envs,
        handle_timeout_termination=False,
        steps_per_episode=5,
        address=server.address,
        table=f"cleanrl-{num_envs}",
    )
    told: list[tuple[Any, ...]] = []
    obs, _ = envs.reset(seed=1)
    envs.action_space.seed(1)
    for _ in range(60):
        actions = envs.action_space.sample()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        real_next_obs = next_obs.copy()
        for i in np.flatnonzero(truncations):
            real_next_obs[i] = infos["final_obs"][i]
        buffer.add(obs, real_next_obs, actions, rewards, terminations, infos)
        column = rewards.astype(np.float32)[:, None]
        told += zip(obs.copy(), actions, real_next_obs, np.zeros_like(column), column, strict=True)
        obs = next_obs
    envs.close()
    assert buffer.size() == 60
    expected = sorted(b"".join(np.ascontiguousarray(part).tobytes() for part in one) for one in told)
    assert sorted_rows(all_of(buffer)) == expected
    assert buffer.table.info().num_episodes >= 8 * num_envs
    buffer.reset()
    assert buffer.size() == 0
    buffer.close()


def test_its_options_and_time_limits_in_a_list_of_infos() -> None:
    space = spaces.Box(0, 255, (4, 2, 2), np.uint8)
    buffer = ReplayBuffer(50, space, spaces.Discrete(3), "auto", optimize_memory_usage=True, frames=4)
    stack = np.repeat(np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2), 4, 1)
    following = np.concatenate([stack[:, 1:], stack[:, :1] + 9], 1)
    buffer.add(stack, following, [2], [1.0], [True], [{"TimeLimit.truncated": True}])
    drawn = buffer.sample(3)
    assert (drawn.observations.cpu().numpy() == stack).all()
    assert (drawn.next_observations.cpu().numpy() == following).all()
    assert drawn.dones.tolist() == [[0.0]] * 3
    assert drawn.actions.tolist() == [[2]] * 3
    assert buffer.table.spec.signature["observation"].shape == (1, 2, 2)
    buffer.close()
