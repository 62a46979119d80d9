"""What the demo's actors write and its learner reads: the targets are those of the episodes that were played."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.demo.actor import Actor
from shmreplay.clients.demo.learner import GAMMA, Learner
from shmreplay.clients.demo.q_network import QNetwork
from shmreplay.clients.demo.tables import N_STEP, REPLAY, WEIGHTS, demo_tables
from shmreplay.clients.params import Params

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")


@pytest.fixture
def client() -> Iterator[sr.Client]:
    with sr.Server(demo_tables(num_actors=1)) as server, server.client() as client:
        yield client


class Episode:
    """An environment of one random episode, and what the target of each of its steps must be, worked out slowly."""

    def __init__(self, length: int, terminates: bool, rng: np.random.Generator) -> None:
        self.observations = rng.normal(size=(length + 1, 4)).astype(np.float32)
        self.rewards = rng.normal(size=length).astype(np.float32)
        self.terminates = terminates
        self.actions: list[int] = []

    def reset(self) -> tuple[Any, dict[str, Any]]:
        return self.observations[0], {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(self.rewards[len(self.actions)])
        self.actions.append(action)
        is_last = len(self.actions) == len(self.rewards)
        terminated, truncated = is_last and self.terminates, is_last and not self.terminates
        return self.observations[len(self.actions)], reward, terminated, truncated, {}

    def target(self, t: int) -> tuple[int, float, float, np.ndarray]:
        """Action, return, discount and last observation of the item that starts at step t."""
        last = min(t + N_STEP, len(self.actions))
        value = sum(GAMMA**k * float(reward) for k, reward in enumerate(self.rewards[t:last]))
        has_ended = self.terminates and last == len(self.actions)
        return int(self.actions[t]), value, 0.0 if has_ended else GAMMA ** (last - t), self.observations[last]


def play(client: sr.Client, episodes: list[Episode]) -> None:
    """Lets an actor play them."""
    Params(client.table(WEIGHTS)).publish(QNetwork(np.random.default_rng(0)).parameters)
    actor = Actor(client, num_actors=1, seed=np.random.SeedSequence(5))
    with client.table(REPLAY).writer(patterns=[sr.NStep(N_STEP)]) as writer:
        for episode in episodes:
            actor._env = episode  # type: ignore[assignment]
            actor.play_episode(writer)


def test_targets_are_those_of_the_episodes(client: sr.Client, rng: np.random.Generator) -> None:
    episodes = [Episode(length, ends, rng) for length in (1, 2, 3, 4, 5, 11) for ends in (True, False)]
    play(client, episodes)
    replay = client.table(REPLAY)
    batch = replay.get(replay.keys())
    returns, discounts, _ = sr.n_step_targets(batch, GAMMA)
    expected = {
        episode.observations[t].tobytes(): episode.target(t)
        for episode in episodes
        for t in range(len(episode.actions))
    }
    assert len(batch) == len(expected) == 2 * 26, "each step is the first of one item"
    for i in range(len(batch)):
        action, value, discount, last_observation = expected[batch.data["observation"][i].tobytes()]
        assert batch.data["action"][i] == action
        np.testing.assert_allclose(returns[i], value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(discounts[i], discount, rtol=1e-6)
        np.testing.assert_array_equal(batch.data["next_observation"][i], last_observation)


def test_learning_brings_the_errors_of_a_batch_down(client: sr.Client, rng: np.random.Generator) -> None:
    play(client, [Episode(10, True, rng) for _ in range(5)])
    replay = client.table(REPLAY)
    learner = Learner(rng)
    batch = replay.get(replay.keys())
    first = np.abs(learner.update(batch)).mean()
    for _ in range(200):
        last = np.abs(learner.update(batch)).mean()
    assert last < 0.5 * first


def test_the_newest_weights_are_fetched(client: sr.Client, rng: np.random.Generator) -> None:
    weights = Params(client.table(WEIGHTS))
    network = QNetwork(rng)
    observations = rng.normal(size=(3, 4)).astype(np.float32)
    for _ in range(100):
        network.parameters["bias2"] += np.float32(1)
        weights.publish(network.parameters)
    actor = Actor(client, num_actors=1, seed=np.random.SeedSequence(5))
    actor._fetch()
    np.testing.assert_array_equal(actor._network(observations), network(observations))


def test_an_actor_writes_an_item_for_each_step_it_plays(client: sr.Client, rng: np.random.Generator) -> None:
    Params(client.table(WEIGHTS)).publish(QNetwork(rng).parameters)
    actor = Actor(client, num_actors=1, seed=np.random.SeedSequence(5))
    replay = client.table(REPLAY)
    with replay.writer(patterns=[sr.NStep(N_STEP)]) as writer:
        num_steps = sum(actor.play_episode(writer) for _ in range(3))  # CartPole pays 1 a step
    assert len(replay) == num_steps
    batch = replay.get(replay.keys())
    assert len(np.unique(batch.episodes)) == 3
    assert batch.data["terminated"].any(axis=1).sum() >= 3
