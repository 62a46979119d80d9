"""save(): a table out as a data set of Minari."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from minari import MinariDataset, create_dataset_from_buffers
from minari.data_collector import EpisodeBuffer

from shmreplay.clients.minari.episodes import episodes_of
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns import structure
from shmreplay.columns.specs import ArraySpec
from shmreplay.errors import ShmReplayError


def save(
    table: TableHandle,
    dataset_id: str,
    *,
    env: Any = None,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    **metadata: Any,
) -> MinariDataset:
    """Writes the episodes of a table as a data set, losing nothing: images are not stored as JPEG.

    Args:
        table: of transitions; it may be in use. See `episodes_of`.
        dataset_id: such as "cartpole/mine-v0".
        env: an environment, its id or its spec, from which the spaces come and which the data set names.
        observation_space, action_space: without `env`. None: Boxes of the columns' shapes and dtypes.
        **metadata: other arguments of `minari.create_dataset_from_buffers`, such as `author=`, `description=`.

    Raises:
        SignatureMismatch: the table's items are no transitions.
        ShmReplayError: it holds no whole episode.
        ValueError: the data set exists already, its id is malformed, or there is no such environment.
    """
    buffers = [
        EpisodeBuffer(
            id=number,
            observations=episode.observations,
            actions=episode.actions,
            rewards=episode.rewards,
            terminations=episode.terminations,
            truncations=episode.truncations,
        )
        for number, episode in enumerate(episodes_of(table))
    ]
    if not buffers:
        raise ShmReplayError(f"table {table.name!r}: it holds no whole episode to save as {dataset_id!r}")
    if env is None:
        observation_space = _space(table, "observation") if observation_space is None else observation_space
        action_space = _space(table, "action") if action_space is None else action_space
    with _made(env) as made:
        return create_dataset_from_buffers(
            dataset_id,
            buffers,
            env=made,
            observation_space=observation_space,
            action_space=action_space,
            jpeg_encoding=False,
            **metadata,
        )


@contextlib.contextmanager
def _made(env: Any) -> Iterator[Any]:
    """The environment of an id or a spec: made first, since a data set that fails half-way stays as a folder."""
    if not isinstance(env, (str, EnvSpec)):
        yield env
        return
    try:
        made = gymnasium.make(env)
    except gymnasium.error.Error as error:
        raise ValueError(f"env is {env!r:.100}: {error}") from error
    with contextlib.closing(made):
        yield made


def _space(table: TableHandle, name: str) -> spaces.Space[Any]:
    """A space that takes whatever the columns take."""
    signature = table.spec.sig
    node = signature.part(name)
    assert node is not None  # episodes_of() has looked
    leaves: list[Any] = [_box(leaf.spec) for leaf in signature.leaves]
    return _nested(structure.unflatten(node, leaves))


def _nested(tree: Any) -> spaces.Space[Any]:
    if isinstance(tree, dict):
        return spaces.Dict({name: _nested(part) for name, part in tree.items()})
    if isinstance(tree, tuple):
        return spaces.Tuple([_nested(part) for part in tree])
    assert isinstance(tree, spaces.Space)
    return tree


def _box(spec: ArraySpec) -> spaces.Space[Any]:
    dtype: np.dtype[Any] = spec.dtype
    shape = cast(tuple[int, ...], spec.shape)  # episodes_of() refuses axes of any size
    if dtype.kind == "b":
        return spaces.MultiBinary(shape)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    low, high = (-np.inf, np.inf) if limits is None else (limits.min, limits.max)
    return spaces.Box(low, high, shape, dtype.type)
