"""An actor: steps an environment, and writes the steps to the replay table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import gymnasium
import numpy as np

import shmreplay as sr
from shmreplay.clients.demo.q_network import Array, QNetwork
from shmreplay.clients.demo.tables import N_STEP, REPLAY, WEIGHTS
from shmreplay.clients.params import Params
from shmreplay.clients.writers.writer import Writer

FETCH_EVERY = 25  # steps
EXPLORE_STEPS = 10_000  # of all actors together, over which epsilon falls from 1 to FINAL_EPSILON
FINAL_EPSILON = 0.02


def act(address: str, index: int, num_actors: int, seed: int, num_steps: int = 0) -> Iterator[float]:
    """Plays until the tables are closed. Yields the return of each episode.

    Args:
        address: of the server.
        index: of the actor, for its random numbers.
        num_actors: that explore together.
        seed: of the run.
        num_steps: that each actor has made before: it explores as one that made them.
    """
    with contextlib.suppress(sr.TableClosed), sr.connect(address) as client:
        actor = Actor(client, num_actors, np.random.SeedSequence((seed, index)), num_steps)
        # A writer is one stream of steps: one for each environment.
        with client.table(REPLAY).writer(patterns=[sr.NStep(N_STEP)]) as writer:
            while True:
                yield actor.play_episode(writer)


class Actor:
    """An environment and a policy: the newest network, epsilon-greedy."""

    def __init__(self, client: sr.Client, num_actors: int, seed: np.random.SeedSequence, num_steps: int = 0) -> None:
        self._env = gymnasium.make("CartPole-v1")
        self._env.reset(seed=int(seed.generate_state(1)[0]))
        self._rng = np.random.default_rng(seed)
        self._network = QNetwork(self._rng)
        self._weights = Params(client.table(WEIGHTS))
        self._epsilon_fall = (1.0 - FINAL_EPSILON) * num_actors / EXPLORE_STEPS
        self._epsilon = 1.0 - num_steps * self._epsilon_fall  # `_choose` keeps it above FINAL_EPSILON
        self._num_steps = 0

    def play_episode(self, writer: Writer) -> float:
        """Plays and writes one episode; returns the sum of its rewards."""
        observation, _ = self._env.reset()
        episode_return = 0.0
        is_over = False
        while not is_over:
            action = self._choose(observation)
            next_observation, reward, terminated, truncated, _ = self._env.step(action)
            step = {
                "observation": observation,
                "action": action,
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
            }
            # This appends the row, and makes the item that begins n steps ago. The item gets the largest priority in
            # the table, so it is sampled soon; after that the learner sets its priority.
            writer.append(step)
            episode_return += float(reward)
            observation = next_observation
            is_over = terminated or truncated
        # The final observation is stored however the episode ended. After a truncation (a time limit) the learner needs
        # it: the pole still stood and more rewards would have come, so the target includes the value of this
        # observation. After a termination no reward follows, and the learner ignores it. To confuse the two is a
        # classic mistake.
        writer.end_episode({"observation": observation})
        return episode_return

    def _choose(self, observation: Array) -> int:
        if self._num_steps % FETCH_EVERY == 0:
            self._fetch()
        self._num_steps += 1
        self._epsilon = max(FINAL_EPSILON, self._epsilon - self._epsilon_fall)
        if self._rng.random() < self._epsilon:
            return int(self._rng.integers(2))
        return int(self._network(observation[np.newaxis])[0].argmax())

    def _fetch(self) -> None:
        """Gives the network the newest weights; waits for the first ones."""
        with self._weights.latest() as newest:
            newest.copy_to(self._network.parameters)
