"""Recorder: one environment whose steps go into a table."""

from __future__ import annotations

from typing import Any

import gymnasium

from shmreplay.clients.gymnasium.rows import Rows
from shmreplay.clients.gymnasium.spaces import apply, converter
from shmreplay.clients.writers.writer import Writer


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that writes each of its steps. Used as the environment itself.

    Row t has observation t and the action taken there, copied before the environment steps, then reward, terminated and
    truncated. Whichever way an episode ends, its final observation is its final step: by itself, or by a `reset` in
    mid-episode, and `close`. Columns that the table has not are left out.

    Args:
        env: the environment.
        writer: of the table; the caller closes it, after the last step. Its windows and patterns make the items.

    Raises:
        SignatureMismatch: the table's signature is no dict, or has no `observation`.

    A row that waits for the table's rate limiter waits in `step`; what ends that wait (Ctrl-C, a dropped table) is
    raised there, when the environment has stepped: `reset` goes on with a new episode.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], writer: Writer) -> None:
        super().__init__(env)
        self._writer = writer
        self._rows = Rows(writer)
        self._observed = converter(env.observation_space)
        self._acted = converter(env.action_space)
        self._observation: Any = None
        self._is_under_way = False  # the episode has rows
        self._is_open = False  # the last of them lacks what its step brings

    def put(self, **values: Any) -> None:
        """Keeps columns of one's own for the next row, such as `log_prob`: before `step`, or for the final step."""
        self._rows.put(values)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the environment. An episode under way ends here, not terminated, with the observation there was."""
        self._end()
        observation, info = self.env.reset(seed=seed, options=options)
        self._observation = observation
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment and writes the row. Raises what `Writer.append` and `Writer.end_episode` raise."""
        before = self._rows.before(apply(self._observed, self._observation), apply(self._acted, action))
        self._writer.append(before, partial=True)  # now: an environment may write the next observation over this one
        self._is_under_way = self._is_open = True
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._observation = observation
        self._writer.append(self._rows.after(reward, bool(terminated), bool(truncated)))
        self._is_open = False
        if terminated or truncated:
            self._end()
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Ends the episode under way, and closes the environment; not the writer."""
        self._end()
        self.env.close()

    def _end(self) -> None:
        if not self._is_under_way:
            return
        # A row that a step left open, for the environment raised in it, is the final one as it is.
        final = None if self._is_open else self._rows.final(apply(self._observed, self._observation))
        self._writer.end_episode(final)
        self._is_under_way = self._is_open = False
