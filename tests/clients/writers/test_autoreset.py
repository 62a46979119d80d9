"""Gymnasium's three ways of resetting: the same environments and actions give the same transitions in all of them."""

import itertools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from tests.clients.writers.twins import row
from tests.support.tables import TableMaker, live

NUM_ENVS = 5
SIGNATURE = {
    "observation": sr.ArraySpec((4,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float64"),
    "terminated": sr.ArraySpec((), "bool"),
    "truncated": sr.ArraySpec((), "bool"),
}
Mode = gym.vector.AutoresetMode
Transitions = list[list[tuple[Any, ...]]]


def policy(observation: NDArray[Any]) -> NDArray[np.int64]:
    """A bad one, so that poles fall; and time limits differ, so that episodes are truncated as well."""
    return (observation[..., 2] + 0.3 * observation[..., 0] > 0).astype(np.int64)


def make(i: int) -> Callable[[], gym.Env[Any, Any]]:
    return lambda: gym.make("CartPole-v1", max_episode_steps=7 + 20 * i)


def drive(mode: Mode, num_steps: int, append: Any, end: Any) -> None:
    """Steps the environments and tells what a caller of a vector writer tells."""
    envs = gym.vector.SyncVectorEnv([make(i) for i in range(NUM_ENVS)], autoreset_mode=mode)
    observation, _ = envs.reset(seed=[10 + i for i in range(NUM_ENVS)])
    dummy = np.zeros(NUM_ENVS, np.bool_)
    for _ in range(num_steps):
        action = policy(observation)
        following, reward, terminated, truncated, infos = envs.step(action)
        steps = {"observation": observation, "action": action, "reward": reward, "terminated": terminated}
        append({**steps, "truncated": truncated}, ~dummy)
        over = (terminated | truncated) & ~dummy
        final = following.copy()
        if mode is Mode.SAME_STEP and over.any():
            final[over] = np.stack(infos["final_obs"][over])
        end(over, {"observation": final})
        if mode is Mode.DISABLED and over.any():
            following, _ = envs.reset(options={"reset_mask": over})
        dummy = over if mode is Mode.NEXT_STEP else dummy
        observation = following
    envs.close()


def by_environment(table: sr.TableHandle) -> Transitions:
    """Each one's transitions in order; whose an item is, its time limit and first reset tell: by its episodes."""
    batch = live(table)
    found: dict[int, list[tuple[Any, ...]]] = {}
    for i in range(len(batch)):
        parts = [batch.data[name][i].tolist() for name in ("observation", "action", "reward", "next_observation")]
        found.setdefault(int(batch.episodes[i]), []).append((*parts[0], *parts[1:3], *parts[3]))
    return [found[key] for key in found]


def episodes_of(make_table: TableMaker, mode: Mode, num_steps: int) -> tuple[Transitions, Transitions]:
    """Transitions by episode, of a vector writer and of single ones."""
    ours = make_table(100_000, signature=SIGNATURE, capacity_steps=20_000)
    theirs = make_table(100_000, signature=SIGNATURE, capacity_steps=20_000)
    singles = [theirs.writer(patterns=[sr.Transition()]) for _ in range(NUM_ENVS)]
    with ours.vector_writer(NUM_ENVS, patterns=[sr.Transition()]) as writer:

        def append(steps: dict[str, NDArray[Any]], mask: NDArray[np.bool_]) -> None:
            writer.append(steps, mask=mask)
            for i in np.flatnonzero(mask):
                singles[i].append(row(steps, i))

        def end(over: NDArray[np.bool_], final: dict[str, NDArray[Any]]) -> None:
            writer.end_episodes(over, final)
            for i in np.flatnonzero(over):
                singles[i].end_episode(row(final, i))

        drive(mode, num_steps, append, end)
    for single in singles:
        single.close()
    return by_environment(ours), by_environment(theirs)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_vector_writer_makes_what_single_writers_make(make_table: TableMaker, mode: Mode) -> None:
    ours, theirs = episodes_of(make_table, mode, 120)
    assert ours == theirs
    assert len(ours) > 10


def test_all_modes_make_the_same_episodes(make_table: TableMaker) -> None:
    found = {mode: episodes_of(make_table, mode, 150)[0] for mode in Mode}
    # One of the modes spends a step on each reset, so the last episodes differ: those that all three have been through.
    whole = {mode: {tuple(episode) for episode in episodes} for mode, episodes in found.items()}
    common = set.intersection(*whole.values())
    assert len(common) > 20
    assert min(map(len, whole.values())) - len(common) <= NUM_ENVS
    # A transition's next observation is the next one's observation: no reset row is among them.
    for episode in common:
        assert all(a[-4:] == b[:4] for a, b in itertools.pairwise(episode))
