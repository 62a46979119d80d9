"""PrioritizedReplayBuffer of rainbow_atari.py: whole n-step returns, none over an end, and priorities."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from shmreplay.clients.cleanrl import PrioritizedReplayBuffer


def test_only_starts_with_all_their_steps_are_transitions_and_none_goes_over_an_end() -> None:
    """Two episodes: one terminates after 5 steps, one is cut off after 4, which nobody tells."""
    buffer = PrioritizedReplayBuffer(100, (1, 1), "cpu", 3, 0.5, alpha=1.0, beta=1.0)

    def image(number: int) -> Any:
        return np.full((1, 1, 1), number, np.uint8)

    for t in range(5):
        buffer.add(image(t), np.array([t]), np.array([float(t)]), image(t + 1), np.array([t == 4]))
    for t in range(10, 14):
        buffer.add(image(t), np.array([t]), np.array([float(t)]), image(t + 1), np.array([False]))
    buffer.add(image(50), np.array([50]), np.array([0.0]), image(51), np.array([False]))
    assert buffer.size == 5
    drawn = buffer.sample(200)
    found = set(zip(*(value.reshape(200).tolist() for value in drawn[:5]), strict=True))
    returns = {t: t + 0.5 * (t + 1) + 0.25 * (t + 2) for t in (0, 1, 2, 10, 11)}
    assert found == {(t, t, returns[t], t + 3, t == 2) for t in returns}
    assert (drawn.weights == 1).all()
    chosen = drawn.indices[:1]
    buffer.update_priorities(buffer.table.keys(), np.zeros(5))
    buffer.update_priorities(chosen, np.array([-3.0]))
    again = buffer.sample(50)
    assert (again.indices == chosen).mean() > 0.9  # the others have eps
    buffer.beta = 0.0
    assert (buffer.sample(4).weights == 1).all()
    buffer.close()
