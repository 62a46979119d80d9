"""Spaces: makes a table's signature of an environment's spaces, and converts its values for that table."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from shmreplay.columns.leaves import as_spec
from shmreplay.columns.specs import ArraySpec

Convert = Callable[[Any], Any]

_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def signature(env: Env[Any, Any] | VectorEnv[Any, Any, Any], **more: Any) -> dict[str, Any]:
    """Returns the signature of a table that takes the environment's steps.

    Args:
        env: a single or a vector environment; a vector environment counts by its single spaces.
        more: columns of your own, which `put` fills: `log_prob=sr.ArraySpec((), "float32")`.

    Returns:
        `observation` and `action` as their spaces say: an array for a Box, Discrete, MultiDiscrete or MultiBinary, a
        dict for a Dict, a tuple for a Tuple, uint32 `[max_length]` for a Text; `reward`, float32; `terminated` and
        `truncated`, bool.

    Raises:
        TypeError: a space has no fixed size (Graph, Sequence) or no single structure (OneOf).
        ValueError: a column of `more` has the name of one of the others.
    """
    if isinstance(env, VectorEnv):
        return signature_of_spaces(env.single_observation_space, env.single_action_space, **more)
    return signature_of_spaces(env.observation_space, env.action_space, **more)


def signature_of_spaces(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], **more: Any
) -> dict[str, Any]:
    """Returns the signature of a table for the steps of an environment of which only the two spaces are known.

    It is what `signature` returns for such an environment, with the same `more`; both raise the same errors.
    """
    columns = {
        "observation": column(observation_space, "observation"),
        "action": column(action_space, "action"),
        "reward": ArraySpec((), "float32", cast="same_kind"),
        "terminated": ArraySpec((), "bool"),
        "truncated": ArraySpec((), "bool"),
    }
    if taken := sorted(columns.keys() & more.keys()):
        raise ValueError(f"signature: {taken[0]!r} is a column of the environment's; expected another name")
    return {**columns, **more}


def column(space: spaces.Space[Any], path: str) -> Any:
    """Returns a space as a part of a signature. Raises TypeError, which names the path, if that is impossible."""
    if isinstance(space, spaces.Dict):
        return {name: column(part, f"{path}/{name}") for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(column(part, f"{path}[{i}]") for i, part in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        return ArraySpec((space.max_length,), "uint32")
    if isinstance(space, _ARRAYS):
        return as_spec(space, f"signature: {path}")
    raise TypeError(
        f"signature: {path} is {space!r:.100}; expected spaces of one structure and fixed size: Box, Discrete, "
        "MultiDiscrete, MultiBinary, Text, and Dict and Tuple of them. Wrap the environment, or declare a column of "
        "variable shape and write it by hand"
    )


def text(codes: NDArray[np.uint32]) -> NDArray[np.str_]:
    """Returns the texts `[...]` of uint32 `[..., max_length]`, as a batch shows a Text column."""
    codes = np.ascontiguousarray(codes, np.uint32)
    return codes.view(f"U{codes.shape[-1]}")[..., 0]


def converter(space: spaces.Space[Any]) -> Convert | None:
    """Returns a function that converts values of a space, or batches, to its columns; None if none is needed."""
    if isinstance(space, spaces.Text):
        return _codes(space.max_length)
    if isinstance(space, spaces.Dict):
        parts = {name: converter(part) for name, part in space.spaces.items()}
        if not any(parts.values()):
            return None
        return lambda value: {name: apply(convert, value[name]) for name, convert in parts.items()}
    if isinstance(space, spaces.Tuple):
        converts = [converter(part) for part in space.spaces]
        if not any(converts):
            return None
        return lambda value: tuple(apply(convert, part) for convert, part in zip(converts, value, strict=True))
    return None


def apply(convert: Convert | None, value: Any) -> Any:
    """Returns the value, converted if there is a converter."""
    return value if convert is None else convert(value)


def copied(value: Any) -> Any:
    """Returns a copy of a value of a space, or of a batch of them."""
    if type(value) is np.ndarray:
        return value.copy()
    if isinstance(value, dict):
        return {name: copied(part) for name, part in value.items()}
    return copy.deepcopy(value)


def _codes(max_length: int) -> Convert:
    def codes(value: str | Sequence[str]) -> NDArray[np.uint32]:
        texts = np.array(value, f"U{max_length}")
        return texts[..., None].view(np.uint32)

    return codes


def with_rows(space: spaces.Space[Any], batch: Any, rows: Sequence[Any], mask: NDArray[np.bool_]) -> Any:
    """Returns a copy of a batch of values with `rows`, in order, in the places where the mask is True."""
    if isinstance(space, spaces.Dict):
        return {
            name: with_rows(part, batch[name], [row[name] for row in rows], mask) for name, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(with_rows(part, batch[i], [row[i] for row in rows], mask) for i, part in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        left = iter(rows)
        return tuple(next(left) if chosen else value for value, chosen in zip(batch, mask, strict=True))
    changed = np.array(batch)
    changed[mask] = np.stack(rows)
    return changed
