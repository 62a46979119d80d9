"""n-step targets of a batch of `NStep` items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shmreplay.base.dtypes import as_float64, is_real
from shmreplay.columns import structure
from shmreplay.columns.arrays import plain_array
from shmreplay.columns.signature import Signature


class NStepTargets(NamedTuple):
    """What `n_step_targets` returns; float64 `[B, *shape]` for rewards of that shape, num_steps int64 `[B]`."""

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
        batch: a batch of items made by `NStep` or `Transition`, time-major or not. Its arrays may be PyTorch's in host
            memory, or JAX's.
        gamma: discount of one step, 0..1.
        reward: name of the rewards, `[B, n, *shape]` or `[B, *shape]`, where shape is that of the column.
        terminated: name of the termination flags, with as many steps. They are scalars, or have the shape of the
            rewards: one flag for each of their components. Without them, no item counts as terminated.

    Returns:
        returns: discounted sum of the rewards of the item's real steps.
        discounts: gamma to the power of the number of real steps; 0 if a real step terminated, even if truncated, too.
            They have the shape of the returns, so that both can be computed with values of that shape.
        num_steps: number of real steps of each item.

    Raises:
        ValueError: gamma is not in 0..1; the batch has no such column, or no `terminated` although the table has one;
            the rewards are no real numbers; the two have different numbers of steps, or the flags have a shape that the
            rewards do not have; or an item that did not terminate lacks its next step, a `next_*` of the batch, from
            which its target bootstraps.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"n_step_targets: gamma is {gamma!r}; expected 0..1")
    if not isinstance(batch.data, Mapping):
        raise ValueError(
            f"n_step_targets: the data of the batch is a {type(batch.data).__name__}; expected a dict, whose outputs "
            "have names"
        )
    if reward not in batch.data:
        raise ValueError(f"n_step_targets: the batch has no {reward!r}; it has {', '.join(map(repr, batch.data))}")
    signature: Signature | None = getattr(batch, "_signature", None)
    if terminated not in batch.data and signature is not None and signature.part(terminated) is not None:
        raise ValueError(
            f"n_step_targets: the batch has no {terminated!r}, but its table does, and the discounts depend on it; add "
            "it to columns=, or to the window"
        )
    is_time_major = bool(getattr(batch, "time_major", False))
    real = _mask(batch, reward, is_time_major)
    rewards = _read(batch, reward, is_time_major)
    if rewards.shape[:2] != real.shape:
        raise ValueError(
            f"n_step_targets: {reward!r} has the first axes {rewards.shape[:2]}, and its mask {real.shape}; expected "
            "the same"
        )
    num_steps = real.sum(axis=1)
    powers = gamma ** np.arange(real.shape[1], dtype=np.float64)
    returns = np.tensordot(powers, np.where(_beside(real, rewards), rewards, 0.0), axes=(0, 1))
    ended = np.zeros(len(real), np.bool_)
    if terminated in batch.data:
        ended = _ended(batch, (reward, terminated), real, rewards.shape[2:], is_time_major)
    discounts = np.where(ended, 0.0, _beside(np.float64(gamma) ** num_steps, ended))
    bootstraps = np.asarray((discounts > 0).reshape(len(real), -1).any(axis=1))
    _check_next_steps(batch, signature, is_time_major, bootstraps)
    discounts = np.broadcast_to(_beside(discounts, returns), returns.shape).copy()
    return NStepTargets(returns, discounts, num_steps.astype(np.int64))


def _read(batch: Any, name: str, is_time_major: bool) -> NDArray[np.float64]:
    """The numbers of an output, float64 `[B, n, *shape]`. Whether it has a step axis is seen at its mask."""
    where = f"n_step_targets: {name!r}"
    values = batch.data[name]
    if isinstance(values, (Mapping, list, tuple)):
        raise ValueError(f"{where} is a {type(values).__name__}; expected one array, of a single column")
    try:
        array = plain_array(values)
    except Exception as error:  # whatever a foreign __array__ raises is part of the explanation
        raise ValueError(f"{where} cannot be read as an array ({error}); expected numbers in host memory") from error
    if np.ndim(batch.mask[name]) == 1:
        array = array[:, None]
    elif is_time_major:
        array = array.swapaxes(0, 1)
    if not is_real(array.dtype):
        raise ValueError(f"{where} has dtype {array.dtype}; expected real numbers")
    return as_float64(array)


def _mask(batch: Any, name: str, is_time_major: bool) -> NDArray[np.bool_]:
    """Which steps of an output are real, `[B, n]`."""
    mask = batch.mask[name]
    if isinstance(mask, (Mapping, list, tuple)):
        raise ValueError(f"n_step_targets: {name!r} is a {type(mask).__name__}; expected one array, of a single column")
    return _with_steps(mask, is_time_major).astype(np.bool_)


def _ended(
    batch: Any, names: tuple[str, str], real: NDArray[np.bool_], shape: tuple[int, ...], is_time_major: bool
) -> NDArray[np.bool_]:
    """Which items terminated, `[B]`, or `[B, *shape]` if each component of the rewards has a flag."""
    reward, terminated = names
    flags = _read(batch, terminated, is_time_major) != 0
    if flags.shape[:2] != real.shape:
        raise ValueError(
            f"n_step_targets: {reward!r} has {real.shape[1]} steps and {terminated!r} {flags.shape[1]}; expected as "
            "many of both: give both in pad_to=, or neither"
        )
    if flags.shape[2:] not in ((), shape):
        raise ValueError(
            f"n_step_targets: a step's {reward!r} has shape {shape} and its {terminated!r} {flags.shape[2:]}; expected "
            "flags of shape (), or of that of the rewards"
        )
    return np.asarray((flags & _beside(real, flags)).any(axis=1))


def _beside(values: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """The values with axes of size 1 at the end, so that they have as many as `other`."""
    return values.reshape(values.shape + (1,) * (other.ndim - values.ndim))


def _check_next_steps(batch: Any, signature: Signature | None, is_time_major: bool, bootstraps: NDArray[Any]) -> None:
    """Raises ValueError if a row that bootstraps has no next step: its target would use zeros instead."""
    for name, masks in batch.mask.items():
        if not name.startswith("next_"):
            continue
        source = name.removeprefix("next_")
        shown = dict(_leaves(batch.mask.get(source), source))
        for path, mask in _leaves(masks, source):
            if _is_optional(signature, path):
                continue
            steps = _with_steps(mask, is_time_major)
            stack = _with_steps(shown.get(path, mask), is_time_major)
            is_there = steps[:, _newest(stack if stack.shape == steps.shape else steps)]
            lacking = np.flatnonzero(bootstraps & ~is_there)
            if len(lacking) > 0:
                more = ", ..." if len(lacking) > 8 else ""
                raise ValueError(
                    f"n_step_targets: {name!r} is masked in rows [{', '.join(map(str, lacking[:8]))}{more}], which did "
                    "not terminate: there is nothing to bootstrap from; give each episode its final step, "
                    "end_episode(final_step={...}), or the table a column 'terminated'"
                )


def _newest(mask: NDArray[Any]) -> int:
    """The last step of a stack that any item has. What follows is padding."""
    there = np.flatnonzero(mask.any(axis=0))
    return int(there[-1]) if len(there) > 0 else mask.shape[1] - 1


def _is_optional(signature: Signature | None, path: str) -> bool:
    node = None if signature is None else signature.part(path)
    return signature is not None and isinstance(node, structure.LeafNode) and signature.leaves[node.index].spec.optional


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yields the arrays of a nested structure with their paths."""
    if isinstance(tree, Mapping):
        names, parts = [f"{path}/{name}" for name in tree], list(tree.values())
    elif isinstance(tree, (list, tuple)):
        fields = getattr(tree, "_fields", None)
        names = [f"{path}[{i}]" for i in range(len(tree))] if fields is None else [f"{path}/{name}" for name in fields]
        parts = list(tree)
    elif tree is not None:
        yield path, tree
        return
    else:
        return
    for name, part in zip(names, parts, strict=True):
        yield from _leaves(part, name)


def _with_steps(values: Any, is_time_major: bool) -> NDArray[Any]:
    array: NDArray[Any] = np.asarray(values)
    if array.ndim == 1:
        return array[:, None]
    return array.T if is_time_major else array
