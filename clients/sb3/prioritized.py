"""PrioritizedReplayBuffer: transitions drawn by priority, which Stable-Baselines3 itself has not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from shmreplay import selectors
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.sb3.replay_buffer import ReplayBuffer
from shmreplay.clients.torch.tensors import to_host


class PrioritizedReplayBufferSamples(NamedTuple):
    """SB3's samples, the importance weights `[B, 1]`, and the keys of the transitions, int64 `[B]`."""

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None
    weights: torch.Tensor
    keys: torch.Tensor


class PrioritizedReplayBuffer(ReplayBuffer):
    """ReplayBuffer that draws by priority ** alpha. New transitions have the largest priority.

    SB3's algorithms hand no TD errors back. Yours weighs its loss by `weights` and calls
    `update_priorities(samples.keys, td_errors)`: examples/sb3_prioritized_dqn.py does so for DQN.

    Args:
        alpha: 0 draws uniformly.
        beta: of the weights: 0 gives ones, 1 corrects fully. It may be set at any time.
        *args, **kwargs: as of `ReplayBuffer`.
    """

    def __init__(self, *args: Any, alpha: float = 0.6, beta: float = 0.4, **kwargs: Any) -> None:
        self.alpha = alpha
        self.beta = beta
        super().__init__(*args, **kwargs)

    def _sampler(self) -> selectors.Selector:
        return selectors.Prioritized(self.alpha)

    def _samples(self, batch: Batch, env: Any) -> PrioritizedReplayBufferSamples:
        weights = batch.weights(self.beta).astype(np.float32).reshape(-1, 1)
        found = super()._samples(batch, env)
        return PrioritizedReplayBufferSamples(*found, *map(self._tensors, (weights, batch.keys)))

    def update_priorities(self, keys: torch.Tensor, td_errors: torch.Tensor) -> int:
        """Gives transitions the priorities |TD error|. Returns how many of them are still there.

        Args:
            keys: of samples. They are int64; no other dtype holds them.
            td_errors: `[B]` or `[B, 1]`, of any sign.
        """
        return self._transitions.update_priorities(*to_host(keys, td_errors.abs()))
