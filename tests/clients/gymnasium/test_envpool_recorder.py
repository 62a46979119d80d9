"""EnvPoolRecorder: some environments at a time, in the order in which they are ready."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import shmreplay as sr
from shmreplay.clients.gymnasium import EnvPoolRecorder, signature
from tests.clients.gymnasium.conftest import Counting, actions_of, expected, transitions

NUM_ENVS, BATCH = 6, 2


def lengths(number: int) -> int:
    return 2 + number % 3


class FakePool:
    """Answers as EnvPool does: for the environments that are ready, with a reset as the step after an episode."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.config = {"num_envs": NUM_ENVS, "batch_size": BATCH}
        self.envs = [Counting(i, lengths(i)) for i in range(NUM_ENVS)]
        self._over = [True] * NUM_ENVS
        self._ready: list[tuple[Any, ...]] = []
        self._rng = rng
        self.is_closed = False

    def async_reset(self) -> None:
        self._over = [True] * NUM_ENVS
        self._ready = []
        self.send(np.zeros((NUM_ENVS, 2), np.int64), np.arange(NUM_ENVS))

    def send(self, action: Any, env_id: ArrayLike) -> None:
        for act, number in zip(action, np.asarray(env_id).tolist(), strict=True):
            env = self.envs[number]
            if self._over[number]:
                answer: tuple[Any, ...] = (env.reset()[0], 0.0, False, False)
            else:
                answer = env.step(act)[:4]
            self._over[number] = answer[2] or answer[3]
            observation = {"where": answer[0]["where"].copy(), "flags": answer[0]["flags"], "at": answer[0]["parts"][0]}
            self._ready.append((number, observation, *answer[1:]))

    def recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._rng.shuffle(self._ready)
        batch, self._ready = self._ready[:BATCH], self._ready[BATCH:]
        ids, observations, rewards, terminated, truncated = zip(*batch, strict=True)
        stacked = {name: np.stack([one[name] for one in observations]) for name in observations[0]}
        return (
            stacked,
            np.array(rewards),
            np.array(terminated),
            np.array(truncated),
            {"env_id": np.array(ids, np.int32)},
        )

    def close(self) -> None:
        self.is_closed = True


OBSERVATION = {
    "where": sr.ArraySpec((3,), "float32"),
    "flags": sr.ArraySpec((2,), "int8"),
    "at": sr.ArraySpec((), "int64"),
}


def recorded(table: Any, rng: np.random.Generator) -> tuple[EnvPoolRecorder, Any]:
    writer = table.vector_writer(NUM_ENVS)
    return EnvPoolRecorder(FakePool(rng), writer), writer


@pytest.fixture
def table(table_of: Callable[..., Any]) -> Any:
    return table_of({**signature(Counting()), "observation": OBSERVATION})


def test_rows_are_those_of_the_episodes_in_whatever_order_they_come(table: Any, rng: np.random.Generator) -> None:
    pool, writer = recorded(table, rng)
    with writer:
        pool.async_reset()
        for _ in range(200):
            observation, _, _, _, info = pool.recv()
            pool.send(actions_of(observation["where"]), info["env_id"])
        pool.close()
    found = transitions(table)
    for number in range(NUM_ENVS):
        mine = sorted(row for row in found if row[0] == number)
        whole = expected(number, 200, lengths(number), lambda e, t: [e % 10, t % 20])
        assert len(mine) > 20
        assert mine == whole[: len(mine)]
    assert pool.pool.is_closed  # type: ignore[attr-defined]  # the fake's


def test_a_reset_of_all_ends_the_episodes_under_way(table: Any, rng: np.random.Generator) -> None:
    pool, writer = recorded(table, rng)
    with writer:
        for _ in range(3):
            pool.async_reset()
            for _ in range(7):
                observation, _, _, _, info = pool.recv()
                pool.send(actions_of(observation["where"]), info["env_id"])
        pool.close()
    found = transitions(table)
    assert len(found) > 0
    for number in range(NUM_ENVS):
        for episode in {row[1] for row in found if row[0] == number}:
            at = [row[2] for row in found if row[:2] == (number, episode)]
            assert at == list(range(len(at)))


def test_an_action_for_an_environment_that_has_not_answered_is_refused(table: Any, rng: np.random.Generator) -> None:
    pool, writer = recorded(table, rng)
    with writer:
        pool.async_reset()
        observation, _, _, _, info = pool.recv()
        actions: NDArray[np.int64] = actions_of(observation["where"])
        pool.send(actions, info["env_id"])
        with pytest.raises(ValueError, match=r"send: environments \[.*\] have no new observation to act upon"):
            pool.send(actions, info["env_id"])
        pool.close()
