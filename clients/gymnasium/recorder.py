"""Recorder: one environment that writes its steps to a table."""

from __future__ import annotations

from typing import Any

import gymnasium

from shmreplay.clients.gymnasium.rows import Rows
from shmreplay.clients.gymnasium.spaces import apply, converter
from shmreplay.clients.writers.writer import Writer


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that writes each of its steps. Use it in place of the environment.

    Row t has observation t and the action taken there, copied before the environment steps, then reward, terminated and
    truncated. The final observation of an episode is its final step, whether the episode ends by itself or by `reset`
    or `close`. What the table has no column for is left out.

    Args:
        env: the environment.
        writer: of the table; the caller closes it, after the last step. Its windows and patterns make the items.

    Raises:
        SignatureMismatch: the table's signature is no dict, or has no `observation`.

    `step` waits for the table's rate limiter. What ends that wait (Ctrl-C, a dropped table) is raised there, when the
    environment has already stepped: go on with `reset`, which begins a new episode.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], writer: Writer) -> None:
        super().__init__(env)
        self._writer = writer
        self._rows = Rows(writer)
        self._observed = converter(env.observation_space)
        self._acted = converter(env.action_space)
        self._observation: Any = None
        self._is_under_way = False  # the episode has rows
        self._is_open = False  # the outcome of the last row is missing

    def put(self, **values: Any) -> None:
        """Keeps columns of your own, such as `log_prob`, for the next row or the final step. Call it before `step`."""
        self._rows.put(values)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the environment. An unfinished episode ends, not terminated, with its last observation."""
        self._end()
        observation, info = self.env.reset(seed=seed, options=options)
        self._observation = observation
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment and writes the row. Raises what `Writer.append` and `Writer.end_episode` raise."""
        before = self._rows.before(apply(self._observed, self._observation), apply(self._acted, action))
        self._writer.append(
            before, partial=True
        )  # now, because the environment may write the next observation over this one
        self._is_under_way = self._is_open = True
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._observation = observation
        self._writer.append(self._rows.after(reward, bool(terminated), bool(truncated)))
        self._is_open = False
        if terminated or truncated:
            self._end()
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Ends an unfinished episode, and closes the environment, but not the writer."""
        self._end()
        self.env.close()

    def _end(self) -> None:
        if not self._is_under_way:
            return
        # If the environment raised in `step`, its row is still open. It is then the final step as it is.
        final = None if self._is_open else self._rows.final(apply(self._observed, self._observation))
        self._writer.end_episode(final)
        self._is_under_way = self._is_open = False
