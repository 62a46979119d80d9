"""sb3-contrib's algorithms take our buffers as those of Stable-Baselines3 do."""

import pytest

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import torch

import shmreplay as sr
from shmreplay.clients.sb3 import ReplayBuffer


@pytest.mark.long
@pytest.mark.parametrize("name", ["QRDQN", "TQC", "CrossQ"])
def test_they_train_from_a_buffer_in_a_table(server: sr.Server, name: str) -> None:
    torch.set_num_threads(1)
    model = getattr(contrib, name)(
        "MlpPolicy",
        "CartPole-v1" if name == "QRDQN" else "Pendulum-v1",
        buffer_size=1000,
        learning_starts=30,
        replay_buffer_class=ReplayBuffer,
        replay_buffer_kwargs={"address": server.address, "table": name},
        policy_kwargs={"net_arch": [16]},
        device="cpu",
    )
    before = {key: value.clone() for key, value in model.policy.state_dict().items()}
    model.learn(120)
    assert model.replay_buffer.size() == 120
    assert model.replay_buffer.table.info().samples > 0
    assert any(not torch.equal(value, before[key]) for key, value in model.policy.state_dict().items())
    model.replay_buffer.close()
    with server.client() as client:
        client.drop_tables([name])
