"""The learner: double DQN on prioritised batches of n-step items."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.demo.adam import Adam
from shmreplay.clients.demo.q_network import Array, QNetwork
from shmreplay.clients.demo.tables import REPLAY, WEIGHTS
from shmreplay.clients.params import Params

BATCH_SIZE = 64
GAMMA = 0.99
LEARNING_RATE = 1e-3
BETA = 0.4  # how much of the sampler's bias the importance weights correct: 0 nothing, 1 all
SMALLEST_PRIORITY = 1e-3  # an item of priority 0 would never be sampled again
PUBLISH_EVERY = 10  # updates
COPY_TARGET_EVERY = 250  # updates


def learn(address: str, seed: int) -> None:
    """Runs until the tables are closed."""
    with contextlib.suppress(sr.TableClosed), sr.connect(address) as client:
        replay, weights = client.table(REPLAY, seed=seed), Params(client.table(WEIGHTS))
        learner = Learner(np.random.default_rng(seed))
        weights.publish(learner.online.parameters)  # the actors wait for these
        for num_updates in itertools.count(1):
            batch = replay.sample(BATCH_SIZE)
            td_errors = learner.update(batch)
            # The priority is the plain |TD error|. The importance weights belong into the loss; in the priority they
            # would undo the prioritisation. Items that were removed meanwhile are skipped.
            replay.update_priorities(batch.keys, np.abs(td_errors) + SMALLEST_PRIORITY)
            if num_updates % PUBLISH_EVERY == 0:
                weights.publish(learner.online.parameters)
            if num_updates % COPY_TARGET_EVERY == 0:
                learner.target = learner.online.copy()


class Learner:
    """The network that learns, and an older copy of it for the targets."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.online = QNetwork(rng)
        self.target = self.online.copy()
        self._adam = Adam(self.online.parameters, LEARNING_RATE)

    def update(self, batch: Batch) -> Array:
        """One step of gradient descent. Returns the TD errors before it, `[B]`."""
        rows = np.arange(len(batch))
        observations, actions = batch.data["observation"], batch.data["action"]
        # If the episode ended within the n steps, the returns are of the rewards until then, and the next observation
        # is the final one. A discount is 0 after a termination, but not after a truncation.
        returns, discounts, _ = sr.n_step_targets(batch, GAMMA)
        targets = returns + discounts * self._values(batch.data["next_observation"])
        td_errors: Array = (self.online(observations)[rows, actions] - targets).astype(np.float32)
        # Prioritised sampling draws some items more often than others; the weights correct the loss for that.
        # Huber loss: its gradient is the error, cut off at 1.
        loss_gradient = batch.weights(BETA) * np.clip(td_errors, -1, 1) / len(batch)
        output_gradient = np.zeros((len(batch), 2), np.float32)
        output_gradient[rows, actions] = loss_gradient
        self._adam.step(self.online.gradients(observations, output_gradient))
        return td_errors

    def _values(self, observations: Array) -> Array:
        """Double DQN: the online network chooses the action, the target network values it. `[B, 4]` -> `[B]`."""
        actions = self.online(observations).argmax(axis=1)
        values: Array = self.target(observations)[np.arange(len(actions)), actions]
        return values
