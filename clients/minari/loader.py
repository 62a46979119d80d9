"""load(): puts the episodes of a data set into a table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from minari import MinariDataset
from minari.dataset.episode_data import EpisodeData

from shmreplay.clients.gymnasium.spaces import converter
from shmreplay.clients.minari.trees import joined, of_arrays, rows
from shmreplay.clients.tables.table import TableHandle

logger = logging.getLogger("shmreplay")

ROWS = 65_536  # about so many go in with one call


def load(
    table: TableHandle,
    dataset: MinariDataset,
    episodes: Iterable[int] | None = None,
    *,
    count: bool = False,
    timeout_s: float | None = None,
) -> int:
    """Puts episodes into a table, with the final observation of each. Returns how many steps went in.

    The table has the columns `observation`, `action`, `reward`, `terminated` and `truncated`, as `table_spec` makes it,
    and items of any kind. Infos are not stored.

    Args:
        table: as `client.table(name)` gives it.
        dataset: of `minari.load_dataset`.
        episodes: their numbers, as `dataset.episode_indices` has them. None: all of these.
        count: True waits for the rate limiter, as in `table.extend`.
        timeout_s: seconds that each group of episodes waits for room, and for the rate limiter.

    Raises:
        SignatureMismatch: the data do not fit the columns.
        RateLimitTimeout: as in `table.extend`; the groups before it are in.
    """
    num_steps = 0
    chosen = None if episodes is None else list(episodes)
    of_observation, of_action = converter(dataset.observation_space), converter(dataset.action_space)
    for group in _groups(dataset.iterate_episodes(chosen)):
        ends = np.concatenate([np.arange(len(episode)) == len(episode) - 1 for episode in group])
        observations = [_converted(episode.observations, of_observation) for episode in group]
        columns = {
            "observation": joined([rows(tree, slice(None, -1)) for tree in observations]),
            "action": joined([_converted(episode.actions, of_action) for episode in group]),
            "reward": joined([np.asarray(episode.rewards) for episode in group]),
            "terminated": joined([np.asarray(episode.terminations, np.bool_) for episode in group]),
            "truncated": joined([np.asarray(episode.truncations, np.bool_) for episode in group]),
        }
        finals = {"observation": joined([rows(tree, slice(-1, None)) for tree in observations])}
        table.extend(columns, ends, count, timeout_s, final_steps=finals)
        num_steps += len(ends)
    return num_steps


def _groups(episodes: Iterable[EpisodeData]) -> Iterator[list[EpisodeData]]:
    """Episodes together that have about ROWS steps. Those without a step are left out."""
    group: list[EpisodeData] = []
    num_rows = 0
    has_told = False
    for episode in episodes:
        if episode.infos and not has_told:
            has_told = True
            logger.info("the infos of the data set are not stored: %s", ", ".join(sorted(episode.infos)))
        if len(episode) == 0:
            continue
        group.append(episode)
        num_rows += len(episode)
        if num_rows >= ROWS:
            yield group
            group, num_rows = [], 0
    if group:
        yield group


def _converted(tree: Any, convert: Any) -> Any:
    """What spaces such as Text hand over, as the columns have it."""
    tree = of_arrays(np.asarray, tree)
    return tree if convert is None else convert(tree)
