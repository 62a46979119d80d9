"""episodes_of: the episodes that a table of transitions holds."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.minari.trees import joined, rows
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch
from shmreplay.rules.windows import Window

logger = logging.getLogger("shmreplay")

KEYS = 65_536  # are asked for at once for the order of their steps
ROWS = 16_384  # about so many are read at once
FLAGS = ("reward", "terminated", "truncated")  # in windows of several steps, the first one is the step's own
WANTED = ["observation", "action", *FLAGS, "next_observation"]


@dataclass(frozen=True)
class Episode:
    """T steps of one episode, as Minari's EpisodeData has them: observations `[T + 1, ...]`, the others `[T, ...]`."""

    observations: Any
    actions: Any
    rewards: NDArray[Any]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]


def episodes_of(table: TableHandle) -> Iterator[Episode]:
    """The episodes of a table whose items are transitions, in the order in which they began.

    The table may be in use: an episode that is under way has the steps that it has by now. Episodes that have lost
    steps are left out, and a line in the log says how many: some steps were evicted, deleted, or removed meanwhile.

    Raises:
        SignatureMismatch: the items are not transitions, as `sr.Transition()` and `sr.NStep(n)` make them.
    """
    _check_transitions(table.spec.item, table.spec.sig, table.name)
    num_lost = 0
    group: list[NDArray[np.int64]] = []  # keys of episodes
    for keys in _whole_episodes(table):
        if keys is None:
            num_lost += 1
            continue
        group.append(keys)
        if sum(map(len, group)) >= ROWS:
            num_lost += yield from _read(table, group)
            group = []
    num_lost += yield from _read(table, group)
    if num_lost > 0:
        logger.warning("table %r: %d episodes that have lost steps were left out", table.name, num_lost)


def _check_transitions(item: Any, signature: Signature, name: str) -> None:
    outputs = {part.name: part for part in item.parts(signature)} if isinstance(item, Window) else {}
    if uneven := [leaf.path for leaf in signature.leaves if None in leaf.spec.shape or leaf.spec.optional]:
        raise SignatureMismatch(f"table {name!r}: column {uneven[0]!r} is optional or of any size; expected arrays")
    steps = {"observation": 0, "action": 0}
    is_plain = set(WANTED) <= outputs.keys() and all(
        outputs[column].is_squeezed and outputs[column].begin == step for column, step in steps.items()
    )
    if not is_plain or not outputs["next_observation"].is_squeezed:
        raise SignatureMismatch(
            f"table {name!r}: its item is {item!r:.100}; expected one that makes transitions of the columns "
            "observation, action, reward, terminated and truncated: sr.Transition() or sr.NStep(n)"
        )


def _whole_episodes(table: TableHandle) -> Iterator[NDArray[np.int64] | None]:
    """The keys of each episode in the order of its steps; None for one that lacks some."""
    keys = table.keys()
    found = [table.get(keys[at : at + KEYS], columns=["terminated"]) for at in range(0, len(keys), KEYS)]
    if not found:
        return
    keys, numbers, steps = (
        np.concatenate([getattr(batch, name) for batch in found]) for name in ("keys", "episodes", "steps")
    )
    _, first, owner = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.lexsort((steps, first[owner]))  # by where the episode's first item is
    ends = np.flatnonzero(np.diff(first[owner][order])) + 1
    for part in np.split(order, ends):
        yield keys[part] if np.array_equal(steps[part], np.arange(len(part))) else None


def _read(table: TableHandle, group: list[NDArray[np.int64]]) -> Generator[Episode, None, int]:
    """The episodes of these keys. Returns of how many an item was removed meanwhile."""
    if not group:
        return 0
    batch = table.get(np.concatenate(group), columns=WANTED)
    data, num_lost = batch.data, 0
    flags = [data[name] if data[name].ndim == 1 else data[name][:, 0] for name in FLAGS]
    for keys in group:
        at = np.flatnonzero(np.isin(batch.keys, keys))
        if len(at) < len(keys):
            num_lost += 1
            continue
        part = slice(int(at[0]), int(at[0]) + len(at))
        last = rows(data["next_observation"], slice(part.stop - 1, part.stop))
        observations = joined([rows(data["observation"], part), last])
        yield Episode(observations, rows(data["action"], part), *(flag[part] for flag in flags))
    return num_lost
