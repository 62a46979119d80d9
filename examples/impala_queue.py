"""IMPALA: unrolls through a queue, each learned from once, corrected by V-trace (Espeholt et al. 2018).

    python examples/impala_queue.py --plot returns.png

Actors are processes, each with 32 games that step together. They write unrolls of 20 steps into a queue; the learner
takes each once, in the order in which they came, and reads them where they lie: those of 32 games are one array in the
shared memory. By then the actors' policy is older than the learner's, which V-trace corrects for. It learns to catch in
half a minute on two cores. Needs torch.
"""

import argparse
import contextlib
import itertools
import multiprocessing

import numpy as np
import torch
from torch import nn

import shmreplay as sr
from shmreplay.clients import params
from shmreplay.clients.torch import view_tensors

T, GAMMA, NUM_GAMES, BATCH_SIZE = 20, 0.95, 32, 32
ROWS, COLUMNS, NUM_ACTIONS = 10, 5, 3

STEP = {
    "observation": sr.ArraySpec((ROWS, COLUMNS), "uint8"),
    "action": sr.ArraySpec((), "int64"),
    "log_probability": sr.ArraySpec((), "float32"),  # of the action, by the policy that chose it
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
}


class Catch:
    """Games in which a ball falls and the paddle below moves left, right or not at all. A catch rewards 1, else -1.

    A game that has ended begins anew at once.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._every = np.arange(NUM_GAMES)
        self._row = np.zeros(NUM_GAMES, int)
        self._column = rng.integers(COLUMNS, size=NUM_GAMES)
        self._paddle = np.full(NUM_GAMES, COLUMNS // 2)

    def observe(self) -> np.ndarray:
        """The boards, uint8 `[N, ROWS, COLUMNS]`."""
        boards = np.zeros((NUM_GAMES, ROWS, COLUMNS), np.uint8)
        boards[self._every, self._row, self._column] = 1
        boards[self._every, -1, self._paddle] = 1
        return boards

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards, and which games ended."""
        self._paddle = np.clip(self._paddle + actions - 1, 0, COLUMNS - 1)
        self._row += 1
        over = self._row == ROWS - 1
        rewards = np.where(over, np.where(self._column == self._paddle, 1, -1), 0).astype(np.float32)
        self._row[over] = 0
        self._column[over] = self._rng.integers(COLUMNS, size=over.sum())
        self._paddle[over] = COLUMNS // 2
        return rewards, over


def make_network() -> nn.Sequential:
    """From boards to the logits of the actions and, after them, the value."""
    size = ROWS * COLUMNS
    return nn.Sequential(nn.Flatten(-2), nn.Linear(size, 64), nn.ReLU(), nn.Linear(64, NUM_ACTIONS + 1))


def look(network: nn.Sequential, boards: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
    """The policy, and the values."""
    logits, value = network(boards.float()).split([NUM_ACTIONS, 1], dim=-1)
    return torch.distributions.Categorical(logits=logits), value[..., 0]


# --- actors ----------------------------------------------------------------------------------------------------------


def act(address: str, seed: int) -> None:
    """Plays until the tables are closed."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    games, network = Catch(np.random.default_rng(seed)), make_network()
    with contextlib.suppress(sr.TableClosed), sr.connect(address) as client:
        newest = params.Params(client.table("policy"))
        with client.table("unrolls").vector_writer(NUM_GAMES) as writer:
            for number in itertools.count():
                if number % T == 0:
                    with newest.latest() as version:  # waits for the first one
                        version.copy_to(network.state_dict())
                observation = games.observe()
                with torch.no_grad():
                    policy, _ = look(network, torch.from_numpy(observation))
                action = policy.sample()
                reward, terminated = games.step(action.numpy())
                writer.append(  # waits while the queue is full
                    {
                        "observation": observation,
                        "action": action.numpy(),
                        "log_probability": policy.log_prob(action).numpy(),
                        "reward": reward,
                        "terminated": terminated,
                    }
                )


# --- the learner -----------------------------------------------------------------------------------------------------


def learn(client: sr.Client, num_updates: int) -> np.ndarray:
    """Learns from a number of batches of unrolls. Returns the mean return of the games that ended in each."""
    unrolls, policy = client.table("unrolls"), params.Params(client.table("policy"))
    network, means = make_network(), []
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    tenth = num_updates // 10
    for number in range(1, num_updates + 1):
        policy.publish(network.state_dict())
        with unrolls.view(BATCH_SIZE, timeout_s=60) as items:
            means.append(update(network, optimiser, items))
        if number % tenth == 0:
            print(f"update {number} of {num_updates}: mean return {np.mean(means[-tenth:]):.2f}", flush=True)
    info = unrolls.info()
    print(f"part of the batches that were read without a copy: {info.contiguous_views / info.views:.2f}")
    return np.array(means)


def update(network: nn.Sequential, optimiser: torch.optim.Optimizer, items: sr.View) -> float:
    """One step, on tensors over the shared memory itself. Nobody may keep them, so none outlives this function."""
    data = view_tensors(items)
    optimiser.zero_grad()
    loss_of(network, data).backward()
    optimiser.step()
    return float(data["reward"][data["terminated"]].mean())


def loss_of(network: nn.Sequential, data: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss on unrolls `[B, T, ...]`, which have one observation more."""
    policy, values = look(network, data["observation"])  # [B, T + 1]
    log_probability = policy.log_prob(with_last(data["action"]))[:, :-1]
    discounts = GAMMA * (~data["terminated"]).float()  # the row after an end is the next game's first
    ratios = (log_probability - data["log_probability"]).detach().exp().clamp(max=1)
    targets, advantages = v_trace(ratios, discounts, data["reward"], values.detach())
    entropy = policy.entropy()[:, :-1].mean()
    critic = 0.5 * ((targets - values[:, :-1]) ** 2).mean()
    loss: torch.Tensor = critic - (advantages * log_probability).mean() - 0.01 * entropy
    return loss


def with_last(actions: torch.Tensor) -> torch.Tensor:
    """The actions and one more, for the observation to bootstrap from: it has none, and the loss leaves it out."""
    return nn.functional.pad(actions, (0, 1))


def v_trace(
    ratios: torch.Tensor, discounts: torch.Tensor, rewards: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets of the values, and advantages of the actions, `[B, T]`; `ratios` are min(1, pi / mu)."""
    now, following = values[:, :-1], values[:, 1:]
    deltas = ratios * (rewards + discounts * following - now)
    corrections, later = torch.zeros_like(now), torch.zeros_like(now[:, 0])
    for t in reversed(range(now.shape[1])):
        later = deltas[:, t] + discounts[:, t] * ratios[:, t] * later
        corrections[:, t] = later
    targets = now + corrections
    following = torch.cat([targets[:, 1:], values[:, -1:]], dim=1)
    return targets, ratios * (rewards + discounts * following - now)


# --- all of it -------------------------------------------------------------------------------------------------------


def tables(num_actors: int) -> list[sr.Table]:
    """Unrolls to the learner, and weights back."""
    return [
        # An unroll goes on into the next game: all have T steps, and one observation to bootstrap from.
        sr.Table.queue(
            "unrolls",
            STEP,
            max_size=2 * BATCH_SIZE,  # the larger, the older the policy that made an unroll
            item=sr.Unroll(T, across_episodes=True),
            max_streams=num_actors * NUM_GAMES,
        ),
        params.table("policy", make_network().state_dict()),
    ]


def save_plot(path: str, means: np.ndarray) -> None:
    """Saves mean returns over the steps learned from as an image."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    axes.plot(BATCH_SIZE * T * np.arange(1, len(means) + 1), means)
    axes.set_xlabel("steps of all actors")
    axes.set_ylabel("return")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--actors", type=int, default=2, help="processes that play, at least 1")
    parser.add_argument("--updates", type=int, default=2_000, help="batches to learn from, at least 10")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    parser.add_argument("--plot", metavar="FILE", help="save returns over time as an image (needs matplotlib)")
    options = parser.parse_args()
    if options.actors < 1 or options.updates < 10 or options.seed < 0:
        parser.error("expected at least 1 actor and 10 updates, and a seed that is not negative")
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
            context.Process(target=act, args=(server.address, options.seed + number), daemon=True)
            for number in range(options.actors)
        ]
        for actor in actors:
            actor.start()
        means = learn(client, options.updates)
        for actor in actors:  # a kill is harmless at any moment, also inside a call
            actor.kill()
            actor.join()
    if options.plot:
        save_plot(options.plot, means)
    tenth = max(len(means) // 10, 1)
    print(f"mean return in the first tenth: {means[:tenth].mean():.2f}")
    print(f"mean return in the last tenth: {means[-tenth:].mean():.2f}")


if __name__ == "__main__":
    main()
