"""VectorRecorder: environments that step together and write their steps to a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from shmreplay.clients.gymnasium.final_observations import final_observations
from shmreplay.clients.gymnasium.rows import Rows
from shmreplay.clients.gymnasium.spaces import apply, converter, with_rows
from shmreplay.clients.writers.vector_writer import VectorWriter

Mask = NDArray[np.bool_]


class VectorRecorder(VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector environment that writes each of its steps; stream i has those of environment i. Use it in its place.

    It works as `Recorder`, for all three autoreset modes. The final observation is taken from where the mode puts it:
    the observation of the step that ended the episode, or `infos["final_obs"]`: one object for each environment, as
    gymnasium has it, or the structure of the observation space with arrays `[num_envs, ...]`. With next-step autoreset,
    the step in which an environment only resets itself is left out.

    Args:
        env: the vector environment; its `metadata["autoreset_mode"]` says when it resets.
        writer: of the table, with a stream for each environment; the caller closes it, after the last step.

    Raises:
        ValueError: the writer has another number of streams, or the environment does not say when it resets.
        SignatureMismatch: the table's signature is no dict, or has no `observation`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], writer: VectorWriter) -> None:
        super().__init__(env)
        if writer.num_streams != env.num_envs:
            raise ValueError(
                f"VectorRecorder: the writer has {writer.num_streams} streams, the environment {env.num_envs} parts; "
                f"expected as many: table.vector_writer({env.num_envs})"
            )
        self._mode = _mode_of(env)
        self._writer = writer
        self._rows = Rows(writer)
        self._observed = converter(env.single_observation_space)
        self._acted = converter(env.single_action_space)
        self._observation: Any = None
        self._is_under_way = np.zeros(env.num_envs, bool)  # environments whose episode has rows
        self._is_over = np.zeros(env.num_envs, bool)  # environments whose next step is only a reset
        self._are_open: Mask | None = None  # environments with a row whose outcome is missing

    def put(self, **values: Any) -> None:
        """Keeps columns of your own for the next rows, arrays `[num_envs, ...]`. Call it before `step`."""
        self._rows.put(values)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, or those of `options["reset_mask"]`. Their unfinished episodes end."""
        mask = (options or {}).get("reset_mask")
        reset = np.ones(self.env.num_envs, bool) if mask is None else np.asarray(mask, bool)
        self._end(reset & self._is_under_way, self._observation)
        observation, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # a list is taken too
        self._observation = observation
        self._is_over = self._is_over & ~reset
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps the environments and writes their rows. Raises what the writer's calls raise.

        Raises:
            ValueError: an environment reset itself in this step, and `infos` lacks its final observation. The rows of
                this step have no outcome: go on with `reset`.
        """
        mask = ~self._is_over
        before = self._rows.before(apply(self._observed, self._observation), apply(self._acted, actions))
        self._append(before, mask, partial=True)  # now, because they may write the next observations over these
        self._is_under_way |= mask
        self._are_open = mask
        observation, rewards, terminated, truncated, infos = self.env.step(actions)
        self._observation = observation
        over = (np.asarray(terminated, bool) | np.asarray(truncated, bool)) & mask
        final = self._final(observation, infos, over)  # an error leaves the rows as one of the environment does
        self._append(self._rows.after(rewards, terminated, truncated), mask)
        self._are_open = None
        self._end(over, final)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._is_over = over
        elif self._mode is AutoresetMode.DISABLED:
            self._is_over = self._is_over | over  # until they are reset
        return observation, rewards, terminated, truncated, infos

    def _append(self, rows: Any, mask: Mask, partial: bool = False) -> None:
        """Writes rows. Nothing if all environments reset themselves at once: then no row is open."""
        if mask.any():
            self._writer.append(rows, mask=mask, partial=partial)

    def close(self, **kwargs: Any) -> None:
        """Ends unfinished episodes, and closes the environments, but not the writer."""
        self._end(self._is_under_way.copy(), self._observation)
        self.env.close(**kwargs)

    def _final(self, observation: Any, infos: dict[str, Any], over: Mask) -> Any:
        if self._mode is not AutoresetMode.SAME_STEP or not over.any():
            return observation
        space = self.env.single_observation_space
        return with_rows(space, observation, final_observations(infos, space, over), over)

    def _end(self, mask: Mask, observation: Any) -> None:
        if not mask.any():
            return
        # If the environment raised in `step`, its rows are still open. They are then the final steps as they are.
        final = None if self._are_open is not None else self._rows.final(apply(self._observed, observation))
        self._writer.end_episodes(mask, final)
        self._is_under_way &= ~mask
        self._are_open = None


def _mode_of(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise ValueError(
            f"VectorRecorder: the environment's metadata has autoreset_mode {mode!r}; expected one of "
            f"{', '.join(str(known) for known in AutoresetMode)}: without it there is no telling which step is a reset"
        ) from None
