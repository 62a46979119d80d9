"""ReplayBuffer: in the place of that of `cleanrl_utils.buffers`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from shmreplay import selectors
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.torch.tensors import on_device
from shmreplay.clients.transitions.layout import Layout
from shmreplay.clients.transitions.transition_table import TransitionTable
from shmreplay.clients.transitions.transitions_spec import transitions_spec
from shmreplay.rate_limiters import RateLimiter
from shmreplay.rules.windows import AtStart


class ReplayBufferSamples(NamedTuple):
    """Tensors `[B, ...]`; dones and rewards are float32 `[B, 1]`."""

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor


class ReplayBuffer:
    """`rb = ReplayBuffer(...)` of CleanRL's scripts, with each observation stored once.

    The scripts tell `rb.add` of terminations, and of no truncation. Those are found: the next observation that is added
    is another one than the buffer was told, so the episode ends there without having terminated.

    Args:
        buffer_size: transitions, of all environments together.
        observation_space, action_space: of one environment.
        device: of the samples; "auto": a GPU if there is one.
        n_envs: environments.
        optimize_memory_usage: changes nothing: each observation is stored once anyway.
        handle_timeout_termination: whether `infos`, if it is a list, says which ends are time limits.
        frames, at_start, compression, address, table, steps_per_episode, rate_limiter, timeout_s: as of
            `shmreplay.clients.sb3.ReplayBuffer`; `at_start` is "repeat", as gymnasium stacks frames.

    Raises:
        TypeError, ValueError: as by that class.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        frames: int = 1,
        at_start: AtStart = "repeat",
        compression: str | None = None,
        address: str | None = None,
        table: str = "replay",
        steps_per_episode: float = 50,
        rate_limiter: RateLimiter | None = None,
        timeout_s: float | None = 60,
    ) -> None:
        self.n_envs = n_envs
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self.device = device_of(device)
        layout = Layout(observation_space, action_space, frames, compression)
        spec = transitions_spec(
            table,
            layout,
            self.buffer_size * n_envs if address is None else buffer_size,
            n_steps=1,
            at_start=at_start,
            num_streams=n_envs if address is None else None,
            steps_per_episode=steps_per_episode,
            sampler=selectors.Uniform(),
            rate_limiter=rate_limiter,
        )
        self._transitions = TransitionTable(spec, layout, n_envs, address, timeout_s)

    @property
    def table(self) -> TableHandle:
        """The table. Opens it, and creates it if it is not there."""
        return self._transitions.handle

    def size(self) -> int:
        """Steps of all environments that are stored."""
        return len(self._transitions) // self.n_envs

    def add(self, obs: Any, next_obs: Any, action: ArrayLike, reward: ArrayLike, done: ArrayLike, infos: Any) -> None:
        """Adds a transition of each environment. It can be sampled from the next call on, or when its episode ends."""
        over = np.asarray(done).astype(np.bool_).reshape(self.n_envs)
        truncated = np.zeros(self.n_envs, np.bool_)
        if self.handle_timeout_termination and isinstance(infos, list):
            truncated[:] = [info.get("TimeLimit.truncated", False) for info in infos]
            truncated &= over
        self._transitions.add_transitions(obs, next_obs, action, reward, over & ~truncated, truncated)

    def sample(self, batch_size: int) -> ReplayBufferSamples:
        """Draws transitions.

        Raises:
            ValueError: the buffer is private and empty.
            RateLimitTimeout: the rate limiter did not admit them in time.
        """
        batch = self._transitions.draw(batch_size)
        data, layout = batch.data, self._transitions.layout
        dones = data["terminated"].astype(np.float32).reshape(-1, 1)
        values = (
            layout.shown(data["observation"]),
            data["action"],
            layout.shown(data["next_observation"]),
            dones,
            data["reward"].reshape(-1, 1),
        )
        return ReplayBufferSamples(*(on_device(value, self.device) for value in values))

    def flush(self) -> None:
        """Makes transitions of what the last `add` left open."""
        self._transitions.flush()

    def reset(self) -> None:
        """Empties the table, also at an address."""
        self._transitions.reset()

    def close(self) -> None:
        """Ends the writer, and a private table with it. Idempotent; the next call opens it anew."""
        self._transitions.close()


def device_of(device: torch.device | str) -> torch.device:
    """The device that CleanRL means: "auto" is a GPU if there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)
