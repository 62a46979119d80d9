"""n-step targets of a batch of `NStep` items."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class NStepTargets(NamedTuple):
    """What `n_step_targets` returns; float64 `[B]`, num_steps int64 `[B]`."""

    returns: NDArray[np.float64]
    discounts: NDArray[np.float64]
    num_steps: NDArray[np.int64]


def n_step_targets(
    batch: Any,
    gamma: float,
    *,
    reward: str = "reward",
    terminated: str = "terminated",
) -> NStepTargets:
    """The target of item i is `returns[i] + discounts[i] * V(next_observation[i])`.

    Args:
        batch: of items made by `NStep` or `Transition`; time-major or not.
        gamma: discount of one step, 0..1.
        reward: name of the rewards, `[B, n]` or `[B]`.
        terminated: name of the termination flags, of the same shape; a batch without them never terminated.

    Returns:
        returns: discounted sum of the rewards of the item's real steps.
        discounts: gamma to the true number of steps; 0 where a real step terminated, which wins over truncation.
        num_steps: of each item.

    Raises:
        ValueError: gamma is not in 0..1, or the batch has no such column.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"n_step_targets: gamma is {gamma!r}; expected 0..1")
    if reward not in batch.data:
        raise ValueError(f"n_step_targets: the batch has no {reward!r}; it has {', '.join(map(repr, batch.data))}")
    is_time_major = bool(getattr(batch, "time_major", False))
    rewards = _with_steps(batch.data[reward], is_time_major)
    real = _with_steps(batch.mask[reward], is_time_major)
    powers = gamma ** np.arange(rewards.shape[1], dtype=np.float64)
    num_steps = real.sum(axis=1)
    returns = np.where(real, rewards.astype(np.float64), 0.0) @ powers
    ended = np.zeros_like(real)
    if terminated in batch.data:
        ended = _with_steps(batch.data[terminated], is_time_major).astype(np.bool_) & real
    discounts = np.where(ended.any(axis=1), 0.0, np.float64(gamma) ** num_steps)
    return NStepTargets(returns, discounts, num_steps.astype(np.int64))


def _with_steps(values: NDArray[Any], is_time_major: bool) -> NDArray[Any]:
    if values.ndim == 1:
        return values[:, None]
    return values.T if is_time_major else values
