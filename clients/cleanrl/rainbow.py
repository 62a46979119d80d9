"""PrioritizedReplayBuffer: in the place of that in CleanRL's rainbow_atari.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from shmreplay import selectors
from shmreplay.clients.cleanrl.replay_buffer import device_of
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.torch.tensors import on_device
from shmreplay.clients.transitions.layout import Layout
from shmreplay.clients.transitions.transition_table import TransitionTable
from shmreplay.clients.transitions.transitions_spec import transitions_spec
from shmreplay.rules.windows import AtStart


class PrioritizedBatch(NamedTuple):
    """Tensors `[B, ...]`; actions, rewards, dones and weights are `[B, 1]`. `indices`: keys, int64 `[B]` of NumPy."""

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    next_observations: torch.Tensor
    dones: torch.Tensor
    indices: NDArray[np.int64]
    weights: torch.Tensor


class PrioritizedReplayBuffer:
    """The buffer of rainbow_atari.py: n-step returns of images by priority, of one environment.

    The script bootstraps with `gamma ** n_step`, so as there, only starts with all their n steps are transitions. Where
    an episode is cut off, no return goes on into the next one.

    Args:
        capacity: transitions.
        obs_shape: of observations, which are uint8.
        device: of the samples.
        n_step, gamma: steps whose rewards are summed, and the discount of one step.
        alpha, beta, eps: priorities are (|error| + eps) ** alpha; `beta` is that of the weights, and may be set.
        frames, at_start, compression, address, table, steps_per_episode, timeout_s: as of
            `shmreplay.clients.sb3.ReplayBuffer`; `at_start` is "repeat", as gymnasium stacks frames.
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        device: torch.device | str,
        n_step: int,
        gamma: float,
        alpha: float = 0.6,
        beta: float = 0.4,
        eps: float = 1e-6,
        *,
        frames: int = 1,
        at_start: AtStart = "repeat",
        compression: str | None = None,
        address: str | None = None,
        table: str = "replay",
        steps_per_episode: float = 50,
        timeout_s: float | None = 60,
    ) -> None:
        self.capacity = capacity
        self.device = device_of(device)
        self.n_step = n_step
        self.gamma = gamma
        self.beta = beta
        self.eps = eps
        observations = SimpleNamespace(shape=tuple(obs_shape), dtype=np.uint8)
        layout = Layout(observations, SimpleNamespace(shape=(), dtype=np.int64), frames, compression)
        spec = transitions_spec(
            table,
            layout,
            capacity,
            n_steps=n_step,
            at_start=at_start,
            num_streams=1 if address is None else None,
            steps_per_episode=steps_per_episode,
            sampler=selectors.Prioritized(alpha),
            rate_limiter=None,
            drops_short=True,
        )
        self._transitions = TransitionTable(spec, layout, 1, address, timeout_s)

    @property
    def table(self) -> TableHandle:
        """The table. Opens it, and creates it if it is not there."""
        return self._transitions.handle

    @property
    def size(self) -> int:
        """Transitions in the table. Opens it, and creates it if it is not there."""
        return len(self.table)

    def add(self, obs: Any, action: ArrayLike, reward: ArrayLike, next_obs: Any, done: ArrayLike) -> None:
        """Adds a step of the environment: arrays `[1, ...]`."""
        terminated = np.asarray(done).astype(np.bool_).reshape(1)
        self._transitions.add_transitions(obs, next_obs, action, reward, terminated, np.zeros(1, np.bool_))

    def sample(self, batch_size: int) -> PrioritizedBatch:
        """Draws transitions by their priorities.

        Raises:
            ValueError: the buffer is private, and no start has all its steps.
        """
        batch = self._transitions.draw(batch_size)
        data, layout = batch.data, self._transitions.layout
        rewards, terminated = data["reward"].reshape(-1, self.n_step), data["terminated"].reshape(-1, self.n_step)
        powers = self.gamma ** np.arange(self.n_step)
        arrays = (
            layout.shown(data["observation"]),
            data["action"],
            (rewards * powers).sum(axis=1, keepdims=True).astype(np.float32),
            layout.shown(data["next_observation"]),
            terminated.any(axis=1, keepdims=True),
        )
        weights = batch.weights(self.beta).astype(np.float32).reshape(-1, 1)
        observations, actions, returns, following, dones = (on_device(array, self.device) for array in arrays)
        return PrioritizedBatch(
            observations, actions, returns, following, dones, batch.keys, on_device(weights, self.device)
        )

    def update_priorities(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        """Gives transitions the priorities |error| + eps. Those that are gone are left out."""
        errors = np.abs(np.asarray(priorities, np.float64)).reshape(-1)
        self._transitions.update_priorities(np.asarray(indices, np.int64), errors + self.eps)

    def close(self) -> None:
        """Ends the writer, and a private table with it. Idempotent; the next call opens it anew."""
        self._transitions.close()
