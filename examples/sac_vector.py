"""Soft actor-critic on environments that step together, at a fixed number of samples per insert (Haarnoja et al. 2018).

    python examples/sac_vector.py --plot returns.png

One process steps four pendulums and learns in between. A recorder writes their steps. The table's rate limiter alone
says how often the learner updates. It swings them up within a minute on two cores. Needs torch and gymnasium.
"""

import argparse
import copy
import itertools
from collections.abc import Iterable

import gymnasium
import numpy as np
import torch
from torch import nn

import shmreplay as sr
from shmreplay.clients.gymnasium import VectorRecorder, signature
from shmreplay.clients.torch import TorchBatch, TorchSampler, n_step_targets

NUM_ENVS, GAMMA, TAU = 4, 0.95, 0.02
EPISODE = 201  # steps of each, with the one that resets it
BATCH_SIZE = 64
SAMPLES_PER_INSERT = 64  # an update for each step of each environment
START = 400  # transitions of random actions, before the first update
REWARD_SCALE = 0.1  # so that values are near what new networks give


class Agent:
    """A policy that is Gaussian before it is squashed into the range of actions, two critics, and a temperature."""

    def __init__(self, observation_size: int, action_size: int, largest_action: float) -> None:
        self._largest = largest_action
        self._policy = make_network(observation_size, 2 * action_size)
        self._critics = [make_network(observation_size + action_size, 1) for _ in range(2)]
        self._targets = copy.deepcopy(self._critics)
        self._log_alpha = torch.zeros((), requires_grad=True)
        self._entropy_goal = -float(action_size)
        self._policy_steps = torch.optim.Adam(self._policy.parameters(), lr=3e-3, fused=True)
        critics = itertools.chain(*(critic.parameters() for critic in self._critics))
        self._critic_steps = torch.optim.Adam(critics, lr=3e-3, fused=True)
        self._alpha_steps = torch.optim.Adam([self._log_alpha], lr=3e-3, fused=True)

    def act(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions `[B, A]`, and the logarithms of their probabilities `[B]`."""
        mean, log_std = self._policy(observations).chunk(2, dim=-1)
        chosen = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = chosen.rsample()
        # The density of tanh(raw), written so that it is exact where tanh is flat.
        squash = 2 * (np.log(2) - raw - nn.functional.softplus(-2 * raw))
        return self._largest * raw.tanh(), (chosen.log_prob(raw) - squash).sum(dim=-1)

    def update(self, batch: TorchBatch) -> None:
        """A step of critics, policy and temperature."""
        observation, action, following = (batch.data[name] for name in ("observation", "action", "next_observation"))
        # A pendulum's episode is cut off, never terminated: its discount is GAMMA, and the target goes on.
        returns, discounts, _ = n_step_targets(batch, GAMMA)
        alpha = self._log_alpha.detach().exp()
        with torch.no_grad():
            next_action, log_probability = self.act(following)
            next_value = torch.minimum(*values(self._targets, following, next_action)) - alpha * log_probability
            target = REWARD_SCALE * returns + discounts * next_value
        errors = torch.stack(values(self._critics, observation, action)) - target
        descend(self._critic_steps, (errors**2).mean(dim=1).sum())

        new_action, log_probability = self.act(observation)
        value = torch.minimum(*values(self._critics, observation, new_action))
        descend(self._policy_steps, (alpha * log_probability - value).mean())
        descend(self._alpha_steps, -(self._log_alpha * (log_probability.detach() + self._entropy_goal)).mean())
        with torch.no_grad():
            for slow, fast in zip(parameters(self._targets), parameters(self._critics), strict=True):
                slow.lerp_(fast, TAU)


def make_network(num_inputs: int, num_outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(num_inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, num_outputs))


def values(critics: Iterable[nn.Module], observation: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
    """What each critic says, `[B]`."""
    both = torch.cat([observation, action], dim=-1)
    return [critic(both)[:, 0] for critic in critics]


def parameters(networks: Iterable[nn.Module]) -> list[nn.Parameter]:
    """The parameters of all networks."""
    return [parameter for network in networks for parameter in network.parameters()]


def descend(optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """A step down the loss."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def train(num_steps: int, seed: int) -> np.ndarray:
    """Steps and learns. Returns the episodes' returns, in the order in which they ended."""
    envs = gymnasium.make_vec("Pendulum-v1", num_envs=NUM_ENVS)
    agent = Agent(3, 1, largest_action=2.0)
    limiter = sr.rate_limiters.SampleToInsertRatio(
        SAMPLES_PER_INSERT, min_size_to_sample=START, error_buffer=2 * NUM_ENVS * SAMPLES_PER_INSERT
    )
    table = sr.Table(
        "replay", signature(envs), max_size=100_000, item=sr.Transition(), rate_limiter=limiter, max_streams=NUM_ENVS
    )
    report = NUM_ENVS * max(EPISODE, num_steps // NUM_ENVS // 10)  # steps between two printed lines
    ended, under_way = list[float](), np.zeros(NUM_ENVS)
    with sr.Server([table]) as server, server.client() as client:
        replay = client.table("replay")
        batches = TorchSampler(replay, BATCH_SIZE, prefetch=0, seed=seed)
        with replay.vector_writer(NUM_ENVS) as writer:
            recorded = VectorRecorder(envs, writer)
            observations, _ = recorded.reset(seed=seed)
            envs.action_space.seed(seed)
            for number in range(NUM_ENVS, num_steps + 1, NUM_ENVS):  # steps of all environments, this one included
                if len(replay) < START:
                    actions = envs.action_space.sample()
                else:
                    with torch.no_grad():
                        actions = agent.act(torch.from_numpy(observations))[0].numpy()
                observations, rewards, terminated, truncated, _ = recorded.step(actions)
                under_way += rewards
                over = terminated | truncated
                ended += under_way[over].tolist()
                under_way[over] = 0
                while replay.can_sample(BATCH_SIZE):  # as often as the limiter admits
                    agent.update(next(batches))
                if number % report == 0:
                    print(f"step {number} of {num_steps}: mean return {np.mean(ended[-NUM_ENVS:]):.0f}", flush=True)
            recorded.close()
    return np.array(ended)


def save_plot(path: str, returns: np.ndarray) -> None:
    """Saves returns over the steps made as an image."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    axes.plot(EPISODE * np.arange(1, len(returns) + 1), returns, ".")
    axes.set_xlabel("steps of all environments")
    axes.set_ylabel("return")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=8_000, help="of all environments together, at least 2000")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    parser.add_argument("--plot", metavar="FILE", help="save returns over time as an image (needs matplotlib)")
    options = parser.parse_args()
    if options.steps < 2_000 or options.seed < 0:
        parser.error("expected at least 2000 steps, and a seed that is not negative")
    if options.plot:
        try:
            save_plot(options.plot, np.zeros(1))  # a file that cannot be written fails now, not after the learning
        except (ImportError, OSError, ValueError) as error:
            parser.error(f"argument --plot: {error}")
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    returns = train(options.steps, options.seed)
    if options.plot:
        save_plot(options.plot, returns)
    print(f"mean return of the first {NUM_ENVS} episodes: {returns[:NUM_ENVS].mean():.0f}")
    print(f"mean return of the last {NUM_ENVS} episodes: {returns[-NUM_ENVS:].mean():.0f}")


if __name__ == "__main__":
    main()
