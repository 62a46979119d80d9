"""PrioritizedReplayBuffer: draws follow the priorities, and samples are SB3's with two more fields."""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import torch
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from shmreplay.clients.sb3 import PrioritizedReplayBuffer
from tests.clients.sb3.conftest import MakeBuffer
from tests.clients.sb3.streams import CONTINUOUS, DICT, DISCRETE, VECTOR, stream


def test_draws_follow_the_priorities_that_td_errors_give(make_buffer: MakeBuffer, rng: np.random.Generator) -> None:
    buffer = make_buffer(PrioritizedReplayBuffer, 100, VECTOR, CONTINUOUS, alpha=1.0, beta=1.0, steps_per_episode=1)
    for told in stream(VECTOR, CONTINUOUS, 1, 50, rng):
        buffer.add(*told)
    buffer.flush()
    samples = buffer.sample(20)
    assert samples._fields == (*ReplayBufferSamples._fields, "weights", "keys")
    assert samples.weights.shape == samples.rewards.shape == (20, 1)
    assert samples.weights.dtype == torch.float32
    assert (samples.weights == 1).all()  # all priorities are equal as yet
    keys = torch.from_numpy(buffer.table.keys())
    chosen = keys[[3, 7]]
    assert buffer.update_priorities(keys, torch.zeros(50, 1)) == 50
    assert buffer.update_priorities(chosen, torch.tensor([[-1.0], [3.0]])) == 2  # the sign is of no matter
    drawn = buffer.sample(400)
    counts = [(drawn.keys == key).sum().item() for key in chosen]
    assert sum(counts) == 400
    assert 40 < counts[0] < 170  # 100 expected, of deviation 9
    np.testing.assert_allclose(drawn.weights[drawn.keys == chosen[0]].numpy(), 1)
    np.testing.assert_allclose(drawn.weights[drawn.keys == chosen[1]].numpy(), 1 / 3, rtol=1e-6)


def test_new_transitions_have_the_largest_priority_and_dicts_work(
    make_buffer: MakeBuffer, rng: np.random.Generator
) -> None:
    buffer = make_buffer(PrioritizedReplayBuffer, 100, DICT, DISCRETE, n_steps=2, steps_per_episode=1)
    told = list(stream(DICT, DISCRETE, 1, 21, rng))
    for step in told[:20]:
        buffer.add(*step)
    buffer.flush()
    keys = torch.from_numpy(buffer.table.keys())
    buffer.update_priorities(keys, torch.full((20,), 5.0))
    buffer.add(*told[20])
    buffer.flush()
    samples = buffer.sample(8)
    assert set(samples.observations) == {"image", "place", "flags"}
    assert samples.discounts is not None
    assert buffer.table.get(buffer.table.keys()).priorities[-1] == 5
