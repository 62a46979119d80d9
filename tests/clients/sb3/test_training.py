"""Training with a buffer of ours, drawing the rows that SB3's own would draw: all weights are equal, bit for bit."""

from typing import Any

import numpy as np
import pytest

sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import torch
from stable_baselines3.common.env_util import make_vec_env

from shmreplay.clients.sb3 import ReplayBuffer


class SameDraws(ReplayBuffer):
    """Draws the rows that SB3's own buffer would draw, by the same random numbers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._transitions.seed = lambda: 0  # the global generator stays as it is
        self._keys = np.zeros((self.buffer_size, self.n_envs), np.int64)  # by place and environment

    def add(self, obs: Any, *told: Any) -> None:
        place = self.pos
        super().add(obs, *told)
        self.flush()
        new = self.table.keys()[-self.n_envs :]
        observations = self.table.get(new).data["observation"]
        owners = [int(np.flatnonzero((obs == row).all(axis=1))[0]) for row in observations]
        self._keys[place, owners] = new

    def sample(self, batch_size: int, env: Any = None) -> Any:
        upper = self.buffer_size if self.full else self.pos
        places = np.random.randint(0, upper, size=batch_size)
        environments = np.random.randint(0, high=self.n_envs, size=(batch_size,))
        batch = self.table.get(self._keys[places, environments])
        assert len(batch) == batch_size
        return self._samples(batch, env)


NUM_STEPS = 360  # one of Pendulum's episodes is cut off
CASES = {
    "SAC, 1 environment": (sb3.SAC, "Pendulum-v1", 1, {"train_freq": 1, "buffer_size": 150}),
    "SAC, 3 environments": (sb3.SAC, "Pendulum-v1", 3, {"train_freq": 1, "buffer_size": 240}),
    "DQN, 2 environments": (sb3.DQN, "CartPole-v1", 2, {"buffer_size": 200, "target_update_interval": 100}),
}


def trained(kind: Any, name: str, num_envs: int, options: dict[str, Any], buffer: Any, steps: int) -> Any:
    envs = make_vec_env(name, n_envs=num_envs, seed=3)
    more = {} if buffer is None else {"replay_buffer_class": buffer}
    model = kind(
        "MlpPolicy",
        envs,
        seed=1,
        learning_starts=20,
        batch_size=16,
        policy_kwargs={"net_arch": [16]},
        device="cpu",
        **options,
        **more,
    )
    model.learn(steps)
    envs.close()
    return model


@pytest.mark.long
@pytest.mark.parametrize("case", sorted(CASES))
def test_equal_draws_train_equally_to_the_last_bit(case: str) -> None:
    """The ring of SB3 wraps round on the way."""
    kind, name, num_envs, options = CASES[case]
    torch.set_num_threads(1)  # small networks: several threads only wait for each other
    theirs = trained(kind, name, num_envs, options, None, NUM_STEPS)
    ours = trained(kind, name, num_envs, options, SameDraws, NUM_STEPS)
    expected, found = theirs.policy.state_dict(), ours.policy.state_dict()
    assert expected.keys() == found.keys()
    for weight in expected:
        assert torch.equal(expected[weight], found[weight]), weight
    assert [episode["r"] for episode in theirs.ep_info_buffer] == [episode["r"] for episode in ours.ep_info_buffer]
    ours.replay_buffer.close()
