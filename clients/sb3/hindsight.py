"""HerReplayBuffer: in the place of Stable-Baselines3's, with goals that are drawn when transitions are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her import her_replay_buffer as her
from stable_baselines3.her.goal_selection_strategy import KEY_TO_GOAL_STRATEGY, GoalSelectionStrategy

from shmreplay.base.checks import check_int
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.sb3.replay_buffer import DictReplayBuffer
from shmreplay.rules.windows import Steps, Window

GOALS = ("observation", "desired_goal", "achieved_goal")  # what the observations of such an environment have
LONGEST = 1000  # steps of an episode, if the environment does not tell
NO_INFOS = (
    "copy_info_dict is True, but a table stores no infos, which are Python objects; expected False: put the numbers "
    "that compute_reward needs into the observation"
)


class HerReplayBuffer(DictReplayBuffer, her.HerReplayBuffer):
    """`replay_buffer_class=HerReplayBuffer`: hindsight experience replay (arXiv 1707.01495), as SB3's.

    A transition can be drawn from the end of its episode on. Of those drawn, `n_sampled_goal` of `n_sampled_goal + 1`
    get another goal: one that their own episode has achieved, and the reward of it.

    Args:
        env: asked for rewards by `compute_reward(achieved_goal, desired_goal, infos)`; the infos are empty.
        n_sampled_goal, goal_selection_strategy: as of SB3's.
        copy_info_dict: must be False.
        max_episode_steps: the most steps of an episode. None: as the environment's spec tells; 1000 if it does not. Of
            a longer episode, transitions can be drawn so many steps later, and get goals of so many steps.
        buffer_size, observation_space, action_space, device, n_envs, **options: as of `ReplayBuffer`, but n_steps and
            frames must be 1.

    Raises:
        TypeError: the observation space is no Dict.
        ValueError: it lacks a goal, or an argument is out of range.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        env: VecEnv,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        n_sampled_goal: int = 4,
        goal_selection_strategy: GoalSelectionStrategy | str = "future",
        copy_info_dict: bool = False,
        *,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        where = type(self).__name__
        if lacking := set(GOALS) - set(getattr(observation_space, "spaces", GOALS)):
            raise ValueError(f"{where}: the observation space has no {', '.join(sorted(lacking))}; expected {GOALS}")
        if copy_info_dict:
            raise ValueError(f"{where}: {NO_INFOS}")
        if one := {name: options[name] for name in ("n_steps", "frames") if options.get(name, 1) != 1}:
            raise ValueError(f"{where}: {one} given; expected 1 of each: a goal is one of single steps")
        self.env = env
        self.copy_info_dict = False
        self.goal_selection_strategy = _strategy(goal_selection_strategy, where)
        self.n_sampled_goal = check_int(where, "n_sampled_goal", n_sampled_goal, 0, 2**20)
        self.her_ratio = 1 - 1 / (self.n_sampled_goal + 1)
        self.max_episode_steps = check_int(
            where, "max_episode_steps", max_episode_steps or _told_longest(env) or LONGEST, 1, 2**20
        )
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
            **options,
        )

    def _window(self) -> Window:
        """A transition, and the goals that its episode achieved: from this step on, or by all of its steps."""
        longest = self.max_episode_steps
        first = 1 - longest if self._is_of_episode else 1
        columns: dict[str, Steps] = {
            "next_observation": ("observation", 1),
            "goals": ("observation/achieved_goal", first, longest + 1),
        }
        return Window(columns, rest=0, at_start="zeros", at_end="pad")

    def _draw(self, batch_size: int, env: VecNormalize | None) -> Batch:
        if len(self.table) == 0 and (self._transitions.is_private or self._transitions.pending() > 0):
            raise RuntimeError(
                "no episode has ended yet, so there is nothing to sample; let learning_starts be more than the steps "
                "of an episode"
            )
        return super()._draw(batch_size, env)

    def _samples(self, batch: Batch, env: VecNormalize | None) -> Any:
        num_real = len(batch) - int(self.her_ratio * len(batch))
        if num_real < len(batch):
            self._relabel(batch, slice(num_real, None))
        return super()._samples(batch, env)

    def _relabel(self, batch: Batch, rows: slice) -> None:
        """Gives transitions of a batch goals of their episodes, and the rewards of these."""
        if self.env is None:
            raise ValueError(f"{type(self).__name__}: it has no env to compute rewards; call set_env(env)")
        data = batch.data
        goals = self._drawn_goals(data["goals"][rows], batch.mask["goals"][rows])
        infos: list[dict[str, Any]] = [{} for _ in goals]
        achieved = data["next_observation"]["achieved_goal"][rows]
        # Of the first environment: all have the same rewards.
        (rewards,) = self.env.env_method("compute_reward", achieved, goals, infos, indices=[0])
        data["reward"][rows] = rewards
        for observation in (data["observation"], data["next_observation"]):
            observation["desired_goal"][rows] = goals

    @property
    def _is_of_episode(self) -> bool:
        return self.goal_selection_strategy is GoalSelectionStrategy.EPISODE

    def _drawn_goals(self, goals: NDArray[Any], is_real: NDArray[np.bool_]) -> NDArray[Any]:
        """One goal of each row, `[n, *shape]`, of `[n, L, *shape]`; by NumPy's global generator, as SB3 draws."""
        num, first = is_real.sum(axis=1), is_real.argmax(axis=1)
        if self._is_of_episode:  # what the reset left was not achieved by a step
            num, first = num - 1, first + 1
        is_final = self.goal_selection_strategy is GoalSelectionStrategy.FINAL
        place = num - 1 if is_final else np.random.randint(0, num)
        drawn: NDArray[Any] = goals[np.arange(len(goals)), first + place]
        return drawn

    def truncate_last_trajectory(self) -> None:
        """Ends the episodes under way without terminating them."""
        if self._transitions.pending() > 0:
            warnings.warn(
                "the episodes under way end here, as if they were truncated; to go on with them, give "
                "truncate_last_traj=False",
                stacklevel=2,
            )
            self.flush()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["env"]
        return state


def _strategy(asked: GoalSelectionStrategy | str, where: str) -> GoalSelectionStrategy:
    found = KEY_TO_GOAL_STRATEGY.get(asked.lower()) if isinstance(asked, str) else asked
    if not isinstance(found, GoalSelectionStrategy):
        raise ValueError(
            f"{where}: goal_selection_strategy is {asked!r}; expected one of {', '.join(KEY_TO_GOAL_STRATEGY)}"
        )
    return found


def _told_longest(env: VecEnv) -> int | None:
    """The most steps of an episode, as the environment's spec tells; None if it does not."""
    (spec,) = env.get_attr("spec", indices=[0])
    return getattr(spec, "max_episode_steps", None)
