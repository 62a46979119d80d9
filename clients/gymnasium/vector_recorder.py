"""VectorRecorder: environments that step together and write their steps to a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from shmreplay.clients.gymnasium.final_observations import final_observations
from shmreplay.clients.gymnasium.rows import Rows
from shmreplay.clients.gymnasium.spaces import apply, converter, copied, with_rows
from shmreplay.clients.writers.vector_writer import VectorWriter
from shmreplay.errors import SignatureMismatch

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
        # Masks are made anew when they change, never changed in place.
        self._all, self._none = np.ones(env.num_envs, bool), np.zeros(env.num_envs, bool)
        self._is_under_way = self._none  # environments whose episode has rows
        self._is_over = self._none  # environments whose next step is only a reset
        self._begun: dict[str, Any] = {}  # what the last step's rows had before the environments stepped
        self._is_begun = self._none  # environments whose row of these was not written

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
        self._is_begun = self._is_begun & ~reset
        observation, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # a list is taken too
        self._observation = observation
        still_over = self._is_over & ~reset
        self._is_over = still_over if still_over.any() else self._none
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps the environments and writes their rows. Raises what the writer's calls raise.

        Raises:
            ValueError: an environment reset itself in this step, and `infos` lacks its final observation. The rows of
                this step were not written: go on with `reset`.
        """
        mask = self._all if self._is_over is self._none else ~self._is_over
        # Copied now, because the environments may write the next observations over these.
        seen, acted = copied(apply(self._observed, self._observation)), copied(apply(self._acted, actions))
        self._begun, self._is_begun = self._rows.before(seen, acted), mask
        observation, rewards, terminated, truncated, infos = self.env.step(actions)
        self._observation = observation
        over = np.logical_or(terminated, truncated)
        if mask is not self._all:
            over = over & mask
        are_over = np.count_nonzero(over) > 0
        final = self._final(observation, infos, over) if are_over else None
        self._append({**self._begun, **self._rows.after(rewards, terminated, truncated)}, mask)
        if are_over:
            self._end(over, final)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._is_over = over if are_over else self._none
        elif self._mode is AutoresetMode.DISABLED:
            self._is_over = self._is_over | over  # until they are reset
        return observation, rewards, terminated, truncated, infos

    def _append(self, rows: dict[str, Any], mask: Mask) -> None:
        """Writes rows. Nothing if all environments reset themselves at once."""
        try:
            if mask is self._all:
                self._writer.append(rows)
            elif mask.any():
                self._writer.append(rows, mask=mask)
        except SignatureMismatch:
            self._is_begun = self._none  # they could not be written as final steps either
            raise
        except BaseException as error:
            written = mask & getattr(error, "done", self._none)
            self._is_under_way = self._is_under_way | written
            self._is_begun = mask & ~written
            raise
        self._is_under_way = mask if mask is self._all else self._is_under_way | mask
        self._is_begun = self._none

    def close(self, **kwargs: Any) -> None:
        """Ends unfinished episodes, and closes the environments, but not the writer."""
        self._end(self._is_under_way.copy(), self._observation)
        self.env.close(**kwargs)

    def _final(self, observation: Any, infos: dict[str, Any], over: Mask) -> Any:
        if self._mode is not AutoresetMode.SAME_STEP:
            return observation
        space = self.env.single_observation_space
        return with_rows(space, observation, final_observations(infos, space, over), over)

    def _end(self, mask: Mask, observation: Any) -> None:
        """Ends the episodes of these environments, which are under way.

        If the environments raised in `step`, or its rows were not written, what they would have begun with is the final
        step.
        """
        for part, is_begun in ((mask & self._is_begun, True), (mask & ~self._is_begun, False)):
            if part.any():
                final = self._begun if is_begun else self._rows.final(apply(self._observed, observation))
                self._writer.end_episodes(part, final)
                self._is_under_way = self._is_under_way & ~part
                self._is_begun = self._is_begun & ~part


def _mode_of(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise ValueError(
            f"VectorRecorder: the environment's metadata has autoreset_mode {mode!r}; expected one of "
            f"{', '.join(str(known) for known in AutoresetMode)}: without it there is no telling which step is a reset"
        ) from None
