"""Prioritised DQN in Stable-Baselines3 (Schaul et al. 2016): a subclass of its DQN, and a buffer of shmreplay.

    python examples/sb3_prioritized_dqn.py --steps 20000

Stable-Baselines3 has no priorities, and its algorithms keep their TD errors to themselves. The subclass below takes
double Q-learning's targets, weighs the loss, and hands the errors back. Needs stable-baselines3.
"""

import argparse
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN
from torch.nn import functional

from shmreplay.clients.sb3 import PrioritizedReplayBuffer


class PrioritizedDQN(DQN):
    """DQN whose `replay_buffer_class` is a PrioritizedReplayBuffer."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """As DQN's, with weights in the loss, and with new priorities for what was drawn."""
        buffer = self.replay_buffer
        assert isinstance(buffer, PrioritizedReplayBuffer)
        buffer.beta = 1 - 0.6 * self._current_progress_remaining  # from 0.4 to 1
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses = []
        for _ in range(gradient_steps):
            samples = buffer.sample(batch_size, env=self._vec_normalize_env)
            discounts = self.gamma if samples.discounts is None else samples.discounts
            with torch.no_grad():
                best = self.q_net(samples.next_observations).argmax(dim=1, keepdim=True)
                following = self.q_net_target(samples.next_observations).gather(1, best)
                targets = samples.rewards + (1 - samples.dones) * discounts * following
            values = self.q_net(samples.observations).gather(1, samples.actions.long())
            loss = (samples.weights * functional.smooth_l1_loss(values, targets, reduction="none")).mean()
            losses.append(loss.item())
            self.policy.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            buffer.update_priorities(samples.keys, targets - values)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))


def train(steps: int, seed: int) -> Any:
    """Trains on CartPole-v1. Returns the model."""
    model = PrioritizedDQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=1e-3,
        buffer_size=20_000,
        learning_starts=500,
        batch_size=64,
        train_freq=2,
        target_update_interval=250,
        exploration_fraction=0.2,
        policy_kwargs={"net_arch": [64, 64]},
        replay_buffer_class=PrioritizedReplayBuffer,
        replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99},
        seed=seed,
        device="cpu",
    )
    return model.learn(steps)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20_000, help="of the environment, at least 1000")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    options = parser.parse_args()
    if options.steps < 1_000 or options.seed < 0:
        parser.error("expected at least 1000 steps, and a seed that is not negative")
    torch.set_num_threads(1)
    model = train(options.steps, options.seed)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    print(f"mean return of the last {len(returns)} episodes: {np.mean(returns):.0f}")
    print(f"mean return of the last 10 episodes: {np.mean(returns[-10:]):.0f}")


if __name__ == "__main__":
    main()
