"""ReplayBuffer, DictReplayBuffer: in the place of those of Stable-Baselines3."""

from __future__ import annotations

import logging
import warnings
from typing import Any, NoReturn

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common import buffers
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from shmreplay import selectors
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.torch.tensors import on_device
from shmreplay.clients.transitions.layout import Layout
from shmreplay.clients.transitions.transition_table import TransitionTable
from shmreplay.clients.transitions.transitions_spec import transitions_spec
from shmreplay.rate_limiters import RateLimiter
from shmreplay.rules.windows import AtStart, Window

logger = logging.getLogger("shmreplay")

ENOUGH = 0.9  # of its size, below which a full buffer warns
NO_ARRAYS = "its transitions are in a table, not in arrays; buffer.table.get(buffer.table.keys()).data has copies"
ARRAYS = ("observations", "next_observations", "actions", "rewards", "timeouts")  # of SB3's own buffers


class ReplayBuffer(buffers.ReplayBuffer):
    """`replay_buffer_class=ReplayBuffer`: each observation stored once, with right time limits, in a table.

    Observations may be arrays or dicts of them. The table is private and ends with the buffer, or it is a daemon's,
    which outlives the script and which several processes fill.

    Args:
        buffer_size: transitions, of all environments together.
        observation_space, action_space, device, n_envs, handle_timeout_termination: as of SB3's.
        optimize_memory_usage: changes nothing: each observation is stored once anyway, and time limits stay right.
        n_steps: rewards of so many steps are summed, with `discounts` of their true number.
        gamma: the discount of one step, if `n_steps` is more than 1.
        frames: how many frames an observation has along its first axis. Only the newest one is stored.
        at_start: what a stack shows before its episode, "zeros", as SB3's VecFrameStack, or "repeat", as gymnasium's
            wrapper.
        compression: "lz4" compresses observations.
        address: of a daemon. None: the table is private.
        table: the table's name at that address. All processes must give the same arguments.
        steps_per_episode: the final observation of each episode is one more row; there is room for them where
            episodes have so many steps on average. If they are shorter, the oldest transitions go early; a warning says
            so where more than a tenth of them is gone.
        rate_limiter: of the table, such as `sr.rate_limiters.SampleToInsertRatio`. None: one transition is enough.
        timeout_s: seconds that `sample` waits for the rate limiter. None: for ever.

    Raises:
        TypeError: a space has no fixed shape.
        ValueError: an argument is out of range.

    The other names of SB3's buffers are not there: there are no arrays behind this one (`observations` and so on).
    `table` is the handle, with all that it can do. A private buffer is pickled with its rows; one with an address is
    pickled without, and finds them again there.
    """

    pos: int
    full: bool

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        frames: int = 1,
        at_start: AtStart = "zeros",
        compression: str | None = None,
        address: str | None = None,
        table: str = "replay",
        steps_per_episode: float = 50,
        rate_limiter: RateLimiter | None = None,
        timeout_s: float | None = 60,
    ) -> None:
        layout = Layout(observation_space, action_space, frames, compression)
        # Not ReplayBuffer's own, which makes the arrays.
        buffers.BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps = n_steps
        self.gamma = gamma
        spec = transitions_spec(
            table,
            layout,
            self.buffer_size * n_envs if address is None else buffer_size,
            n_steps=n_steps,
            at_start=at_start,
            num_streams=n_envs if address is None else None,
            steps_per_episode=steps_per_episode,
            sampler=self._sampler(),
            rate_limiter=rate_limiter,
            window=self._window(),
        )
        self._transitions = TransitionTable(spec, layout, n_envs, address, timeout_s)
        self._nobody = np.zeros(n_envs, np.bool_)
        self._has_warned = self._has_warned_of_env = False
        self._num_draws = 0

    def _sampler(self) -> selectors.Selector:
        return selectors.Uniform()

    def _window(self) -> Window | None:
        """Of the table's items, if they are more than transitions of `n_steps`."""
        return None

    @property
    def table(self) -> TableHandle:
        """The table. Opens it, and creates it if it is not there."""
        return self._transitions.handle

    @property
    def dones(self) -> _Dones:
        """Takes `dones[...] = True`, with which SB3 ends the last episode: what is no transition yet becomes one."""
        return _Dones(self)

    def size(self) -> int:
        """Steps of all environments that are stored, as SB3 counts them."""
        return len(self._transitions) // self.n_envs

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Adds a transition of each environment. It can be sampled from the next call on, or when its episode ends."""
        num: int = self.n_envs
        terminated = truncated = self._nobody
        if np.count_nonzero(done):
            over = np.asarray(done).astype(np.bool_).reshape(num)
            if self.handle_timeout_termination:
                truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos], np.bool_) & over
            terminated = over & ~truncated
        self._transitions.add_transitions(obs, next_obs, action, reward, terminated, truncated)
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Draws transitions, as SB3's samples; normalised by `env`, if it is given.

        Raises:
            ValueError: the buffer is private and empty.
            RateLimitTimeout: the rate limiter did not admit them in time.
        """
        return self._samples(self._draw(batch_size, env), env)

    def _draw(self, batch_size: int, env: VecNormalize | None) -> Batch:
        self._num_draws += 1
        if not self._has_warned and self._num_draws & (self._num_draws - 1) == 0:  # now and then: it takes a moment
            self._warn(env)
        return self._transitions.draw(batch_size)

    def _warn(self, env: VecNormalize | None) -> None:
        if env is not None and not self._transitions.is_private and not self._has_warned_of_env:
            self._has_warned_of_env = True
            warnings.warn(
                "VecNormalize normalises samples by the statistics of this process, which are not those of other "
                "processes that fill the buffer at this address; publish them with the weights, or leave VecNormalize "
                "out",
                stacklevel=4,
            )
        info = self.table.info()
        if info.evicted_for_room > 0 and info.size < ENOUGH * info.max_size:
            self._has_warned = True
            warnings.warn(
                f"the buffer holds {info.size} of {info.max_size} transitions and is full: episodes are short, and the "
                "final observation of each is one more row; give it a smaller steps_per_episode=, in "
                "replay_buffer_kwargs",
                stacklevel=4,
            )

    def _samples(self, batch: Batch, env: VecNormalize | None) -> Any:
        data, layout = batch.data, self._transitions.layout
        observations = self._tensors(self._normalize_obs(layout.shown(data["observation"]), env))
        following = self._tensors(self._normalize_obs(layout.shown(data["next_observation"]), env))
        rewards, dones, discounts = self._summed(batch, env)
        make = ReplayBufferSamples if isinstance(observations, torch.Tensor) else DictReplayBufferSamples
        values = (self._tensors(data["action"]), following, *map(self._tensors, (dones, rewards)))
        return make(observations, *values, None if discounts is None else self._tensors(discounts))

    def _summed(
        self, batch: Batch, env: VecNormalize | None
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32] | None]:
        """Rewards and dones, `[B, 1]`, and the discounts of the next values if there are several steps."""
        rewards, terminated = batch.data["reward"], batch.data["terminated"]
        if self.n_steps == 1:
            column: NDArray[Any] = self._normalize_reward(rewards.reshape(-1, 1), env)
            return column, terminated.astype(np.float32).reshape(-1, 1), None
        # In the order in which SB3's NStepReplayBuffer sums, so that its results are equal to the last bit.
        real = batch.mask["reward"]
        powers = self.gamma ** np.arange(self.n_steps, dtype=np.float32).reshape(1, -1)
        returns = (self._normalize_reward(rewards, env) * powers * real).sum(axis=1, keepdims=True)
        discounts = self.gamma ** real.sum(axis=1, keepdims=True).astype(np.float32)
        return returns, (terminated & real).any(axis=1, keepdims=True).astype(np.float32), discounts

    def _tensors(self, arrays: Any) -> Any:
        return on_device(arrays, self.device)

    def flush(self) -> None:
        """Makes transitions of what the last `add` left open; windows of several steps end there."""
        self._transitions.flush()

    def reset(self) -> None:
        """Empties the table, also at an address."""
        super().reset()
        self._transitions.reset()

    def close(self) -> None:
        """Ends the writer, and a private table with it. Idempotent; the next call opens it anew."""
        self._transitions.close()

    def _get_samples(self, batch_inds: NDArray[Any], env: VecNormalize | None = None) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} draws from a table, which has no places; expected sample(), or table.get(keys)"
        )

    def __getattr__(self, name: str) -> NoReturn:
        hint = f": {NO_ARRAYS}" if name in ARRAYS else ""
        raise AttributeError(f"{type(self).__name__} has no {name!r}{hint}")

    def __getstate__(self) -> dict[str, Any]:
        if not self._transitions.is_private:
            logger.info(
                "the saved replay buffer has no transitions: they stay in the table %r at its daemon; "
                "`shmreplay export` saves them", self._transitions.spec.name,
            )  # fmt: skip
        return self.__dict__.copy()


class DictReplayBuffer(ReplayBuffer):
    """ReplayBuffer for observations that are dicts, which ReplayBuffer takes as well. SB3's scripts name both."""

    def __init__(self, buffer_size: int, observation_space: spaces.Dict, *args: Any, **kwargs: Any) -> None:
        if not isinstance(observation_space, spaces.Dict):
            raise TypeError(f"DictReplayBuffer: the observation space is {observation_space!r:.100}; expected a Dict")
        super().__init__(buffer_size, observation_space, *args, **kwargs)


class _Dones:
    """The end of the last episode, as SB3 writes it into an array."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer

    def __setitem__(self, place: object, is_over: bool) -> None:
        self._buffer.flush()

    def __getitem__(self, place: object) -> NoReturn:
        raise AttributeError(f"{type(self._buffer).__name__} has no array of dones: {NO_ARRAYS}")
