"""VectorRecorder: the same rows in all three modes of resetting."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.gymnasium import VectorRecorder, signature, text
from tests.clients.gymnasium.conftest import Counting, Row, actions_of, expected, transitions

NUM_ENVS = 4
Mode = gym.vector.AutoresetMode


def lengths(number: int) -> int:
    return 2 + number


def vector(mode: Mode, kind: Any = gym.vector.SyncVectorEnv, **options: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    # With same-step resets gymnasium keeps the final observation by reference, and the reset would write over it.
    reuses = mode is not Mode.SAME_STEP
    envs: gym.vector.VectorEnv[Any, Any, Any] = kind(
        [lambda i=i: Counting(i, lengths(i), reuses) for i in range(NUM_ENVS)], autoreset_mode=mode, **options
    )
    return envs


def actions_for(observation: Any) -> NDArray[np.int64]:
    return actions_of(observation["where"])


def play(envs: gym.vector.VectorEnv[Any, Any, Any], mode: Mode, steps: int) -> None:
    observation, _ = envs.reset()
    for _ in range(steps):
        observation, _, terminated, truncated, _ = envs.step(actions_for(observation))
        over = terminated | truncated
        if mode is Mode.DISABLED and over.any():
            observation, _ = envs.reset(options={"reset_mask": over})


def check_whole_episodes(found: list[Row], at_least: int) -> None:
    """Each environment's rows are its episodes from the first on, the last perhaps not to its end."""
    for number in range(NUM_ENVS):
        mine = sorted(row for row in found if row[0] == number)
        whole = expected(number, 100, lengths(number), lambda e, t: [e % 10, t % 20])
        assert len(mine) >= at_least
        assert mine == whole[: len(mine)]


@pytest.mark.parametrize("mode", list(Mode))
def test_rows_are_those_of_the_episodes_whatever_resets_them(table_of: Callable[..., Any], mode: Mode) -> None:
    envs = vector(mode)
    table = table_of(signature(envs))
    with table.vector_writer(NUM_ENVS) as writer:
        recorded = VectorRecorder(envs, writer)
        play(recorded, mode, 40)
        recorded.close()
    found = transitions(table)
    resets = sum(40 // (lengths(i) + 1) for i in range(NUM_ENVS)) if mode is Mode.NEXT_STEP else 0
    assert len(found) == NUM_ENVS * 40 - resets
    check_whole_episodes(found, 20)


@pytest.mark.parametrize("mode", list(Mode))
def test_environments_may_all_end_at_the_same_step(table_of: Callable[..., Any], mode: Mode) -> None:
    """As time limits have it: with next-step autoreset a whole step is then none, but resets."""
    makers: Any = [lambda i=i: Counting(i, 3, mode is not Mode.SAME_STEP) for i in range(2)]
    envs = gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)
    table = table_of(signature(envs))
    with table.vector_writer(2) as writer:
        recorded = VectorRecorder(envs, writer)
        play(recorded, mode, 12)
        recorded.close()
    whole = [row for i in range(2) for row in expected(i, 3 if mode is Mode.NEXT_STEP else 4, 3, lambda e, t: [e, t])]
    assert sorted(transitions(table)) == sorted(whole)


def test_processes_that_share_their_observations_are_recorded_alike(table_of: Callable[..., Any]) -> None:
    envs = vector(Mode.NEXT_STEP, gym.vector.AsyncVectorEnv, shared_memory=True, copy=False)
    table = table_of(signature(envs))
    with table.vector_writer(NUM_ENVS) as writer:
        recorded = VectorRecorder(envs, writer)
        play(recorded, Mode.NEXT_STEP, 20)
        recorded.close()
    check_whole_episodes(transitions(table), 10)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_reset_of_all_ends_the_episodes_with_the_observations_there_were(
    table_of: Callable[..., Any], mode: Mode
) -> None:
    envs = vector(mode)
    table = table_of(signature(envs))
    with table.vector_writer(NUM_ENVS) as writer:
        recorded = VectorRecorder(envs, writer)
        for _ in range(3):
            observation, _ = recorded.reset()
            recorded.step(actions_for(observation))
        recorded.close()
    found = transitions(table)
    assert sorted(row[:3] + row[5:6] for row in found) == sorted(
        (number, episode, 0, 1) for number in range(NUM_ENVS) for episode in range(3)
    )


class Stuck(gym.vector.VectorEnv[Any, Any, Any]):
    """Two environments that nobody resets; the first one ends with its second step, and says so at every later step."""

    def __init__(self) -> None:
        self.num_envs = 2
        self.metadata = {"autoreset_mode": Mode.DISABLED}
        self.single_observation_space = self.single_action_space = spaces.Discrete(100)
        self._at = np.zeros(2, np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._at = np.where((options or {}).get("reset_mask", [True, True]), 0, self._at)
        return self._at.copy(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._at += 1
        return self._at.copy(), np.ones(2), np.array([self._at[0] >= 2, False]), np.zeros(2, bool), {}

    def close(self, **kwargs: Any) -> None:
        pass


def test_an_ended_environment_writes_nothing_until_its_reset(table_of: Callable[..., Any]) -> None:
    envs = Stuck()
    table = table_of(signature(envs))
    with table.vector_writer(2) as writer:
        recorded = VectorRecorder(envs, writer)
        recorded.reset()
        for _ in range(5):
            recorded.step(np.array([1, 2]))
        recorded.reset(options={"reset_mask": np.array([True, False])})
        recorded.step(np.array([1, 2]))
        recorded.close()
    data = table.get(np.sort(table.keys())).data
    assert data["observation"][data["action"] == 1].tolist() == [0, 1, 0]
    assert data["observation"][data["action"] == 2].tolist() == [0, 1, 2, 3, 4, 5]


def test_environments_of_texts_and_tuples_reset_in_the_same_step(table_of: Callable[..., Any]) -> None:
    class Told(gym.Env[Any, Any]):
        observation_space = spaces.Tuple([spaces.Text(5), spaces.Discrete(100)])
        action_space = spaces.Discrete(3)

        def __init__(self) -> None:
            self.at = 0

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            self.at = 0
            return ("a", 0), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.at += 1
            return ("abcde"[: self.at + 1], self.at), 1.0, self.at == 3, False, {}

    envs = gym.vector.SyncVectorEnv([Told] * 2, autoreset_mode=Mode.SAME_STEP)
    table = table_of(signature(envs))
    with table.vector_writer(2) as writer:
        recorded = VectorRecorder(envs, writer)
        recorded.reset()
        for _ in range(3):
            recorded.step(np.array([1, 2]))
    data = table.get(np.sort(table.keys())).data
    assert sorted(text(data["next_observation"][0]).tolist()) == ["ab", "ab", "abc", "abc", "abcd", "abcd"]
    assert sorted(data["next_observation"][1].tolist()) == [1, 1, 2, 2, 3, 3]


class Failing(gym.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Raises in the steps of these numbers."""

    def __init__(self, envs: gym.vector.VectorEnv[Any, Any, Any], *steps: int) -> None:
        super().__init__(envs)
        self.fails, self.at = steps, 0

    def step(self, actions: Any) -> Any:
        self.at += 1
        if self.at in self.fails:
            raise RuntimeError("broken")
        return self.env.step(actions)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_step_in_which_the_environments_raise_is_the_final_one(table_of: Callable[..., Any], mode: Mode) -> None:
    envs = Failing(vector(mode), 1, 3)
    table = table_of(signature(envs))
    with table.vector_writer(NUM_ENVS) as writer:
        recorded = VectorRecorder(envs, writer)
        observation, _ = recorded.reset()
        with pytest.raises(RuntimeError):  # no episode has a row yet
            recorded.step(actions_for(observation))
        assert writer.num_steps.tolist() == [0] * NUM_ENVS
        observation, *_ = recorded.step(actions_for(observation))
        assert writer.num_steps.tolist() == [1] * NUM_ENVS
        with pytest.raises(RuntimeError):
            recorded.step(actions_for(observation))
        recorded.reset()
        assert len(table) == NUM_ENVS  # the transition from the only row to the step that failed
        check_whole_episodes(transitions(table), 1)
        recorded.close()
    assert len(table) == NUM_ENVS


def test_rows_that_do_not_fit_do_not_keep_the_recorder_from_going_on(table_of: Callable[..., Any]) -> None:
    envs = vector(Mode.NEXT_STEP)
    table = table_of(signature(envs, mine=sr.ArraySpec((), "float32")))
    with table.vector_writer(NUM_ENVS) as writer:
        recorded = VectorRecorder(envs, writer)
        observation, _ = recorded.reset()
        recorded.put(mine=np.zeros(NUM_ENVS, np.int64))
        with pytest.raises(sr.SignatureMismatch, match="column 'mine'"):
            recorded.step(actions_for(observation))
        observation, _ = recorded.reset()
        recorded.put(mine=np.zeros(NUM_ENVS, np.float32))
        recorded.step(actions_for(observation))
        assert writer.num_steps.tolist() == [1] * NUM_ENVS
        recorded.close()


def test_a_writer_of_another_number_of_streams_is_refused(table_of: Callable[..., Any]) -> None:
    envs = vector(Mode.NEXT_STEP)
    table = table_of(signature(envs))
    with table.vector_writer(3) as writer, pytest.raises(ValueError, match=r"the writer has 3 streams, .* 4 parts"):
        VectorRecorder(envs, writer)


def test_an_environment_that_does_not_say_when_it_resets_is_refused(table_of: Callable[..., Any]) -> None:
    envs = vector(Mode.NEXT_STEP)
    envs.metadata = {}
    table = table_of(signature(envs))
    with (
        table.vector_writer(NUM_ENVS) as writer,
        pytest.raises(ValueError, match="autoreset_mode None; expected one of"),
    ):
        VectorRecorder(envs, writer)
