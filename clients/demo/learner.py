"""The learner: double DQN on prioritised batches of n-step items."""

from __future__ import annotations

import contextlib
import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.batch import Batch
from shmreplay.clients.demo.adam import Adam
from shmreplay.clients.demo.q_network import Array, QNetwork
from shmreplay.clients.demo.tables import N_STEP, REPLAY, WEIGHTS
from shmreplay.clients.demo.weights import publish

BATCH_SIZE = 64
GAMMA = 0.99
LEARNING_RATE = 1e-3
BETA = 0.4  # how much of the sampler's bias the importance weights take back: 0 nothing, 1 all
SMALLEST_PRIORITY = 1e-3  # an item of priority 0 would never be sampled again
PUBLISH_EVERY = 10  # updates
COPY_TARGET_EVERY = 250  # updates


def learn(address: str, seed: int) -> None:
    """Runs until the tables are closed."""
    with contextlib.suppress(sr.TableClosed), sr.connect(address) as client:
        replay, weights = client.table(REPLAY, seed=seed), client.table(WEIGHTS)
        learner = Learner(np.random.default_rng(seed))
        publish(learner.online, weights)  # the actors wait for these
        for num_updates in itertools.count(1):
            batch = replay.sample(BATCH_SIZE)
            td_errors = learner.update(batch)
            # The priority is the plain |TD error|. The importance weights correct what the learner does with an item;
            # weighting its priority too would undo the prioritisation. Items that were removed meanwhile are skipped.
            replay.update_priorities(batch.keys, np.abs(td_errors) + SMALLEST_PRIORITY)
            if num_updates % PUBLISH_EVERY == 0:
                publish(learner.online, weights)
            if num_updates % COPY_TARGET_EVERY == 0:
                learner.target = learner.online.copy()


class Learner:
    """The network that learns, and the older copy of it that judges."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.online = QNetwork(rng)
        self.target = self.online.copy()
        self._adam = Adam(self.online.parameters, LEARNING_RATE)

    def update(self, batch: Batch) -> Array:
        """One step of gradient descent. Returns the TD errors before it, `[B]`."""
        rows = np.arange(len(batch))
        parts = NStep.of(batch)
        targets = parts.returns + parts.discounts * self._values(parts.last_observation)
        td_errors = self.online(parts.observation)[rows, parts.action] - targets
        # Prioritised sampling shows some items more often than they come; the weights make up for it in the loss.
        # Huber loss: its gradient is the error, cut off at 1.
        loss_gradient = batch.weights(BETA) * np.clip(td_errors, -1, 1) / len(batch)
        output_gradient = np.zeros((len(batch), 2), np.float32)
        output_gradient[rows, parts.action] = loss_gradient
        self._adam.step(self.online.gradients(parts.observation, output_gradient))
        return td_errors

    def _values(self, observations: Array) -> Array:
        """Double DQN: the online network chooses the action, the target network values it. `[B, 4]` -> `[B]`."""
        actions = self.online(observations).argmax(axis=1)
        values: Array = self.target(observations)[np.arange(len(actions)), actions]
        return values


class NStep(NamedTuple):
    """What an n-step target is made of. All `[B]`, the observations `[B, 4]`.

    Attributes:
        observation, action: the item's first row.
        returns: discounted sum of its rewards, float32.
        discounts: what the value of `last_observation` counts: gamma ** number of rewards, 0 after a termination.
        last_observation: the one after the last reward.
    """

    observation: Array
    action: NDArray[np.int64]
    returns: Array
    discounts: Array
    last_observation: Array

    @classmethod
    def of(cls, batch: Batch) -> NStep:
        """Reads items of n + 1 rows, or fewer where the episode ended: columns are `[B, n + 1, ...]`.

        The last row of an item is there for its observation. Its reward and its end, if it has them, are the next
        action's, hence the `[:, :-1]`. What an item lacks is padding: zeros, and `batch.mask` is False there.
        """
        observations = batch.data["observation"]
        rewards, terminated = batch.data["reward"][:, :-1], batch.data["terminated"][:, :-1]
        num_rewards = batch.lengths["observation"] - 1
        return cls(
            observation=observations[:, 0],
            action=batch.data["action"][:, 0],
            returns=rewards @ (GAMMA ** np.arange(N_STEP, dtype=np.float32)),
            # Only termination ends the future. `truncated` is not asked: the episode was cut off, its future was not.
            discounts=np.where(terminated.any(axis=1), 0, GAMMA**num_rewards).astype(np.float32),
            last_observation=observations[np.arange(len(batch)), num_rewards],
        )
