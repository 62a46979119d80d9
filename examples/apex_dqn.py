"""Ape-X DQN: many actors, one learner, and priorities from both (Horgan et al. 2018).

    python examples/apex_dqn.py --plot returns.png

Actors are processes. Each explores at a rate of its own, and inserts 3-step transitions with the TD error that its copy
of the network gives them. The learner samples by priority and gives new priorities back. Needs torch and gymnasium.

After its 10,000 updates, seed 1 kept the pole up for 190 steps on average, without exploration. CartPole-v1 counts as
solved at 475, which the demo of the package reaches (clients/demo).
"""

import argparse
import contextlib
import multiprocessing
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import shmreplay as sr
from shmreplay.clients import params
from shmreplay.clients.torch import TorchBatch, TorchSampler, n_step_targets

N_STEPS, GAMMA, BATCH_SIZE = 3, 0.99, 64
SMALLEST_PRIORITY = 1e-3  # an item of priority 0 would never be sampled again

STEP = {
    "observation": sr.ArraySpec((4,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
    "truncated": sr.ArraySpec((), "bool"),
}


def make_network() -> nn.Sequential:
    """Values of both actions."""
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def tables(num_actors: int) -> list[sr.Table]:
    """Transitions to the learner, weights back to the actors, and returns for the plot."""
    return [
        sr.Table(
            "replay",
            STEP,
            max_size=50_000,
            item=sr.NStep(N_STEPS),
            capacity_steps=60_000,  # items overlap: there are hardly more steps than items
            sampler=sr.selectors.Prioritized(0.6),
            rate_limiter=sr.rate_limiters.SampleToInsertRatio(8, min_size_to_sample=1_000, error_buffer=2_000),
            max_streams=num_actors,
        ),
        params.table("policy", make_network().state_dict()),
        sr.Table("returns", {"return": np.float32(0)}, max_size=100_000, max_streams=num_actors),
    ]


# --- actors ----------------------------------------------------------------------------------------------------------


def act(address: str, index: int, num_actors: int, seed: int) -> None:
    """Plays until the tables are closed."""
    torch.set_num_threads(1)
    rng = np.random.default_rng((seed, index))
    epsilon = 0.4 ** (1 + 7 * index / max(num_actors - 1, 1))
    env, network = gymnasium.make("CartPole-v1"), make_network()
    env.reset(seed=int(rng.integers(2**31)))
    with (
        contextlib.suppress(sr.TableClosed),
        sr.connect(address) as client,
        client.table("replay").writer() as writer,
    ):
        policy, returns = params.Params(client.table("policy")), client.table("returns")
        while True:
            with policy.latest() as newest:  # waits for the first one
                newest.copy_to(network.state_dict())
            returns.insert({"return": play(env, network, epsilon, rng, writer)})


@torch.no_grad()
def play(
    env: Any, network: nn.Sequential, epsilon: float, rng: np.random.Generator, writer: sr.Writer | None = None
) -> np.float32:
    """Plays an episode, writes it if there is a writer, and returns the sum of its rewards."""
    observation, _ = env.reset()
    recent = deque[tuple[float, float]](maxlen=N_STEPS)  # of the newest steps: the value of the action, the reward
    total, is_over = 0.0, False
    while not is_over:
        values = network(torch.from_numpy(observation)).numpy()
        action = int(rng.integers(2)) if rng.random() < epsilon else int(values.argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        is_over, total = terminated or truncated, total + reward
        if writer is not None:
            # This append makes the item of three steps ago, which bootstraps from the present observation.
            writer.append(
                {
                    "observation": observation,
                    "action": action,
                    "reward": float(reward),
                    "terminated": terminated,
                    "truncated": truncated,
                },
                priority=td_error(recent, values.max()) if len(recent) == N_STEPS else None,
            )
            recent.append((values[action], float(reward)))
        observation = following
    if writer is not None:
        writer.end_episode({"observation": observation})  # makes the last items, of fewer steps
    return np.float32(total)


def td_error(recent: deque[tuple[float, float]], bootstrap: float) -> float:
    """The priority of an item made of these steps."""
    target = sum(GAMMA**k * reward for k, (_, reward) in enumerate(recent)) + GAMMA**N_STEPS * bootstrap
    return abs(target - recent[0][0]) + SMALLEST_PRIORITY


# --- the learner -----------------------------------------------------------------------------------------------------


def learn(client: sr.Client, num_updates: int, seed: int) -> nn.Sequential:
    """Double DQN on prioritised batches. Returns the network."""
    replay, policy = client.table("replay"), params.Params(client.table("policy"))
    returns = client.table("returns")
    online, target = make_network(), make_network()
    optimiser = torch.optim.Adam(online.parameters(), lr=1e-3)
    with TorchSampler(replay, BATCH_SIZE, seed=seed, timeout_s=60) as batches:
        for update in range(num_updates):
            if update % 250 == 0:
                target.load_state_dict(online.state_dict())
            if update % 20 == 0:
                policy.publish(online.state_dict())
            batch = next(batches)
            errors = td_errors(online, target, batch)
            # Prioritised sampling draws some items more often than others; the weights correct for that.
            losses = nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
            loss = (batch.weights(beta=0.4) * losses).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            batches.update_priorities(batch.keys_host, errors.abs() + SMALLEST_PRIORITY)
            if (update + 1) % (num_updates // 10) == 0:
                newest = returns.get(returns.keys()[-50:]).data["return"]
                print(f"update {update + 1} of {num_updates}: mean return {newest.mean():.0f}", flush=True)
    return online


def td_errors(online: nn.Sequential, target: nn.Sequential, batch: TorchBatch) -> torch.Tensor:
    """How wrong the online network is about each item, float32 `[B]`."""
    observation, action, following = (batch.data[name] for name in ("observation", "action", "next_observation"))
    # A discount is 0 only where the episode terminated: a target of one that was cut off goes on.
    returns, discounts, _ = n_step_targets(batch, GAMMA)
    with torch.no_grad():
        chosen = online(following).argmax(dim=1, keepdim=True)
        bootstrap = target(following).gather(1, chosen)[:, 0]
    values = online(observation).gather(1, action[:, None])[:, 0]
    errors: torch.Tensor = values - (returns + discounts * bootstrap)
    return errors


# --- all of it -------------------------------------------------------------------------------------------------------


def save_plot(path: str, returns: np.ndarray) -> None:
    """Saves returns over the episodes played as an image, with their running mean."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    axes.plot(returns, alpha=0.3)
    window = min(50, len(returns) // 10 + 1)
    axes.plot(np.arange(window - 1, len(returns)), np.convolve(returns, np.ones(window) / window, "valid"))
    axes.set_xlabel("episodes of all actors")
    axes.set_ylabel("return")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--actors", type=int, default=4, help="processes that play, at least 1")
    parser.add_argument("--updates", type=int, default=10_000, help="batches to learn from, at least 100")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    parser.add_argument("--plot", metavar="FILE", help="save returns over time as an image (needs matplotlib)")
    options = parser.parse_args()
    if options.actors < 1 or options.updates < 100 or options.seed < 0:
        parser.error("expected at least 1 actor and 100 updates, and a seed that is not negative")
    if options.plot:
        try:
            save_plot(options.plot, np.zeros(1))  # a file that cannot be written fails now, not after the learning
        except (ImportError, OSError, ValueError) as error:
            parser.error(f"argument --plot: {error}")
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    with sr.Server(tables(options.actors)) as server, server.client() as client:
        actors = [
            context.Process(target=act, args=(server.address, index, options.actors, options.seed), daemon=True)
            for index in range(options.actors)
        ]
        for actor in actors:
            actor.start()
        network = learn(client, options.updates, options.seed)
        returns = client.table("returns")
        if options.plot:
            save_plot(options.plot, returns.get(returns.keys()).data["return"])
        for actor in actors:  # a kill is harmless at any moment, also inside a call
            actor.kill()
            actor.join()
    rng = np.random.default_rng(options.seed)
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=options.seed)
    greedy = [play(env, network, 0.0, rng) for _ in range(10)]
    print(f"mean return without exploration: {np.mean(greedy):.0f}")


if __name__ == "__main__":
    main()
