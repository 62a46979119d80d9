"""R2D2: a recurrent network that learns from sequences, with stored state and burn-in (Kapturowski et al. 2019).

    python examples/r2d2.py --plot returns.png

Each of sixteen mice sees at the start of a maze which way the cheese is, and has to know it at the junction some steps
later: without memory it goes wrong every other time. Sequences overlap, and each step is stored once. The network
learns to remember within a minute on two cores. Needs torch.
"""

import argparse
import copy

import numpy as np
import torch
from torch import nn

import shmreplay as sr
from shmreplay.clients.torch import TorchBatch, TorchSampler

NUM_MICE, UNITS, GAMMA = 16, 32, 0.95
LENGTH, PERIOD, BURN_IN = 8, 4, 4  # steps of a sequence, which overlap by half, and steps before them to warm up with
BATCH_SIZE, STEPS_PER_UPDATE = 32, 2
CORRIDOR, TIME_LIMIT = 6, 20
AHEAD, LEFT, RIGHT = range(3)

STEP = {
    "observation": sr.ArraySpec((4,), "float32"),
    "state": sr.ArraySpec((UNITS,), "float32"),  # the network's, before it saw this observation
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
    "truncated": sr.ArraySpec((), "bool"),
}


class Mazes:
    """A corridor, and a junction at its end. Only the first observation says where the cheese is.

    The cheese is worth 1, the other side -1, and a bump into a wall -0.1.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._at, self._age, self._side = (np.zeros(NUM_MICE, int) for _ in range(3))
        self.reset(np.ones(NUM_MICE, bool))

    def reset(self, mask: np.ndarray) -> None:
        """Puts some of the mice at the start."""
        self._at[mask] = self._age[mask] = 0
        self._side[mask] = self._rng.integers(LEFT, RIGHT + 1, size=mask.sum())

    def observe(self) -> np.ndarray:
        """float32 `[N, 4]`: cheese to the left, cheese to the right, a corridor, a junction."""
        is_start, is_junction = self._at == 0, self._at == CORRIDOR
        seen = [is_start & (self._side == LEFT), is_start & (self._side == RIGHT), ~is_junction, is_junction]
        return np.stack(seen, axis=1).astype(np.float32)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rewards, which mice have chosen a side, and which are out of time. They stay where they are until `reset`."""
        is_junction, goes_ahead = self._at == CORRIDOR, actions == AHEAD
        terminated = is_junction & ~goes_ahead
        self._age += 1
        self._at += ~is_junction & goes_ahead
        rewards = np.where(is_junction == goes_ahead, -0.1, 0.0)
        rewards[terminated] = np.where(actions == self._side, 1.0, -1.0)[terminated]
        return rewards.astype(np.float32), terminated, ~terminated & (self._age == TIME_LIMIT)


def make_network() -> nn.ModuleDict:
    """A recurrent cell, and the values of the actions in its state."""
    return nn.ModuleDict({"cell": nn.GRUCell(4, UNITS), "head": nn.Linear(UNITS, 3)})


def unroll(network: nn.ModuleDict, data: dict[str, torch.Tensor], real: torch.Tensor) -> torch.Tensor:
    """Values of all actions in each step, `[B, L, 3]`, from the state that is stored with the first real one."""
    first = real.int().argmax(dim=1)
    state = data["state"][torch.arange(len(first)), first]
    states = []
    for t in range(real.shape[1]):
        with torch.set_grad_enabled(torch.is_grad_enabled() and t >= BURN_IN):
            state = torch.where(real[:, t, None], network["cell"](data["observation"][:, t], state), state)
        states.append(state)
    values: torch.Tensor = network["head"](torch.stack(states, dim=1))
    return values


def td_errors(online: nn.ModuleDict, target: nn.ModuleDict, batch: TorchBatch) -> tuple[torch.Tensor, np.ndarray]:
    """How wrong the online network is about each training step, `[B, T]`, and which of these steps are real."""
    data = batch.data
    # An episode has one row more than steps, for its final observation: that row is real, but no step.
    real, is_step = batch.mask["observation"], batch.mask["reward"]
    values = unroll(online, data, real)
    with torch.no_grad():
        chosen = values.argmax(dim=2, keepdim=True)
        following = unroll(target, data, real).gather(2, chosen)[:, 1:, 0]
        targets = data["reward"][:, :-1] + GAMMA * torch.where(data["terminated"][:, :-1], 0.0, following)
    errors = values.gather(2, data["action"][:, :, None])[:, :-1, 0] - targets
    # The last row of a sequence has no next one. Nor has a step without a row after it, unless the episode terminated.
    counts = is_step[:, :-1] & (real[:, 1:] | data["terminated"][:, :-1])
    errors = torch.where(counts, errors, 0.0)[:, BURN_IN:]
    return errors, counts[:, BURN_IN:].numpy()


class Learner:
    """Double Q-learning on prioritised sequences."""

    def __init__(self, replay: sr.TableHandle, seed: int) -> None:
        self._batches = TorchSampler(replay, BATCH_SIZE, prefetch=0, seed=seed)
        self.online = make_network()
        self._target = copy.deepcopy(self.online)
        self._optimiser = torch.optim.Adam(self.online.parameters(), lr=2e-3)
        self._num_updates = 0

    def update(self) -> None:
        """One batch, and its new priorities."""
        if self._num_updates % 100 == 0:
            self._target.load_state_dict(self.online.state_dict())
        self._num_updates += 1
        batch = next(self._batches)
        errors, counts = td_errors(self.online, self._target, batch)
        loss = (batch.weights(beta=0.6) * (errors**2).sum(dim=1)).mean()
        self._optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 1.0)
        self._optimiser.step()
        priorities = sr.sequence_priority(errors.detach().numpy(), counts, eta=0.9)
        self._batches.update_priorities(batch.keys_host, priorities + 1e-3)


def train(num_updates: int, seed: int) -> np.ndarray:
    """Walks and learns. Returns the returns of the walks, in the order in which they ended."""
    table = sr.Table(
        "replay",
        STEP,
        max_size=10_000,
        item=sr.Sequence(LENGTH, PERIOD, BURN_IN),
        capacity_steps=60_000,  # sequences share their steps
        sampler=sr.selectors.Prioritized(0.9),
        max_streams=NUM_MICE,
    )
    rng = np.random.default_rng(seed)
    mazes = Mazes(rng)
    state = torch.zeros(NUM_MICE, UNITS)
    epsilons = 0.4 ** np.linspace(1, 8, NUM_MICE)
    num_steps = STEPS_PER_UPDATE * num_updates
    ended, under_way = list[float](), np.zeros(NUM_MICE)
    with sr.Server([table]) as server, server.client() as client:
        replay = client.table("replay")
        learner = Learner(replay, seed)
        with replay.vector_writer(NUM_MICE) as writer:
            for number in range(1, num_steps + 1):
                observation, before = mazes.observe(), state.numpy()
                with torch.no_grad():
                    state = learner.online["cell"](torch.from_numpy(observation), state)
                    greedy = learner.online["head"](state).argmax(dim=1).numpy()
                action = np.where(rng.random(NUM_MICE) < epsilons, rng.integers(3, size=NUM_MICE), greedy)
                reward, terminated, truncated = mazes.step(action)
                writer.append(
                    {
                        "observation": observation,
                        "state": before,
                        "action": action,
                        "reward": reward,
                        "terminated": terminated,
                        "truncated": truncated,
                    }
                )
                over = terminated | truncated
                writer.end_episodes(over, {"observation": mazes.observe()})
                mazes.reset(over)
                state[torch.from_numpy(over)] = 0
                under_way += reward
                ended += under_way[over].tolist()
                under_way[over] = 0
                if number % STEPS_PER_UPDATE == 0 and len(replay) >= 10 * BATCH_SIZE:
                    learner.update()
                if number % (num_steps // 10) == 0:
                    done = number // STEPS_PER_UPDATE
                    print(f"update {done} of {num_updates}: mean return {np.mean(ended[-200:]):.2f}", flush=True)
    return np.array(ended)


def save_plot(path: str, returns: np.ndarray) -> None:
    """Saves the running mean of the returns as an image."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    window = min(200, len(returns) // 10 + 1)
    axes.plot(np.arange(window - 1, len(returns)), np.convolve(returns, np.ones(window) / window, "valid"))
    axes.set_xlabel("walks of all mice")
    axes.set_ylabel("return")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=4_000, help="batches to learn from, at least 100")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers")
    parser.add_argument("--plot", metavar="FILE", help="save returns over time as an image (needs matplotlib)")
    options = parser.parse_args()
    if options.updates < 100 or options.seed < 0:
        parser.error("expected at least 100 updates, and a seed that is not negative")
    if options.plot:
        try:
            save_plot(options.plot, np.zeros(1))  # a file that cannot be written fails now, not after the learning
        except (ImportError, OSError, ValueError) as error:
            parser.error(f"argument --plot: {error}")
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    returns = train(options.updates, options.seed)
    if options.plot:
        save_plot(options.plot, returns)
    tenth = len(returns) // 10
    print(f"mean return in the first tenth: {returns[:tenth].mean():.2f}")
    print(f"mean return in the last tenth: {returns[-tenth:].mean():.2f}")


if __name__ == "__main__":
    main()
