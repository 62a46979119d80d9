"""EnvPoolRecorder: an EnvPool whose environments step in groups and write their steps to a table."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay.clients.gymnasium.rows import Rows
from shmreplay.clients.writers.vector_writer import VectorWriter

Received = tuple[Any, Any, Any, Any, dict[str, Any]]


class Pool(Protocol):
    """The part of an EnvPool, made with `env_type="gymnasium"`, that is used here."""

    config: dict[str, Any]  # "num_envs"

    def async_reset(self) -> None: ...
    def send(self, action: Any, env_id: NDArray[np.int32]) -> None: ...
    def recv(self) -> Received: ...
    def close(self) -> None: ...


class EnvPoolRecorder:
    """An EnvPool in asynchronous use that writes each of its steps; stream i has those of environment i.

    It works as `VectorRecorder`, for `recv` and `send` of the environments that are ready. EnvPool resets an
    environment with the first action after the end of its episode; that action makes no row.

    Args:
        pool: the environment.
        writer: of the table, with a stream for each environment; the caller closes it.

    Raises:
        ValueError: the writer has another number of streams.
        SignatureMismatch: the table's signature is no dict, or has no `observation`.
    """

    def __init__(self, pool: Pool, writer: VectorWriter) -> None:
        num_envs = int(pool.config["num_envs"])
        if writer.num_streams != num_envs:
            raise ValueError(
                f"EnvPoolRecorder: the writer has {writer.num_streams} streams, the pool {num_envs} environments; "
                f"expected as many: table.vector_writer({num_envs})"
            )
        self.pool = pool
        self._writer = writer
        self._rows = Rows(writer)
        self._num_envs = num_envs
        self._observation: Any = None  # the last one of each environment, [num_envs, ...]
        self._is_open = np.zeros(num_envs, bool)  # environments with a row whose outcome is missing
        self._is_over = np.zeros(num_envs, bool)  # environments that the next action resets
        self._is_known = np.zeros(num_envs, bool)  # environments with an observation that was not acted upon
        self._is_under_way = np.zeros(num_envs, bool)  # environments whose episode has rows

    def async_reset(self) -> None:
        """Resets all environments. Unfinished episodes end, with the last observation that was received."""
        self._end_all()
        for mask in (self._is_open, self._is_over, self._is_known, self._is_under_way):
            mask[:] = False
        self.pool.async_reset()

    def send(self, action: Any, env_id: ArrayLike, **put: Any) -> None:
        """Sends actions `[len(env_id), ...]`, and writes the rows that they begin. `put` are columns of your own.

        Raises:
            ValueError: an environment has not answered since its last action, or was never received.
            SignatureMismatch: `put` has columns that the table has not.
        """
        ids = np.asarray(env_id, np.int32)
        if busy := ids[~self._is_known[ids] | self._is_open[ids]].tolist():
            raise ValueError(
                f"send: environments {busy} have no new observation to act upon; expected those of recv's "
                'info["env_id"], each once'
            )
        self._rows.put(put)
        acts = ~self._is_over[ids]
        row = self._rows.before(_rows_of(self._observation, ids), action)
        if acts.any():
            self._writer.append(row, mask=acts, streams=ids, partial=True)
        self._is_open[ids[acts]] = self._is_under_way[ids[acts]] = True
        self._is_known[ids] = False
        self.pool.send(action, ids)

    def recv(self) -> Received:
        """Receives from environments that are ready, and completes their rows. Raises what the writer's calls raise."""
        observation, reward, terminated, truncated, info = self.pool.recv()
        if "env_id" not in info:
            raise ValueError(
                f"recv: info has no 'env_id' but {sorted(map(str, info))!r:.100}; expected a pool that was made with "
                'env_type="gymnasium", which says there which environments answered'
            )
        ids = np.asarray(info["env_id"], np.int32)
        self._observation = _with(self._observation, observation, ids, self._num_envs)
        self._is_known[ids] = True
        acted = self._is_open[ids]
        if acted.any():
            self._writer.append(self._rows.after(reward, terminated, truncated), mask=acted, streams=ids)
        self._is_open[ids] = False
        over = np.zeros(self._num_envs, bool)
        over[ids] = (np.asarray(terminated, bool) | np.asarray(truncated, bool)) & acted
        self._end(over)
        self._is_over[ids] = over[ids]
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Ends unfinished episodes, and closes the pool, but not the writer."""
        self._end_all()
        self.pool.close()

    def _end_all(self) -> None:
        self._end(self._is_under_way & ~self._is_open)
        if self._is_open.any():  # they will never answer: their open rows are the final steps
            self._writer.end_episodes(self._is_open)

    def _end(self, mask: NDArray[np.bool_]) -> None:
        if mask.any():
            self._writer.end_episodes(mask, self._rows.final(self._observation))
            self._is_under_way &= ~mask


def _rows_of(batch: Any, ids: NDArray[np.int32]) -> Any:
    if isinstance(batch, dict):
        return {name: _rows_of(part, ids) for name, part in batch.items()}
    return batch[ids]


def _with(batch: Any, rows: Any, ids: NDArray[np.int32], num: int) -> Any:
    """The batch of `num` rows with these rows in the places `ids`. Makes a batch if there is none yet."""
    if isinstance(rows, dict):
        return {name: _with(None if batch is None else batch[name], part, ids, num) for name, part in rows.items()}
    if batch is None:
        batch = np.zeros((num, *rows.shape[1:]), rows.dtype)
    batch[ids] = rows
    return batch
