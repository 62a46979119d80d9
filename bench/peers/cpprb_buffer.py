"""cpprb: its buffers for one process, and those for several processes."""

import contextlib
from collections.abc import Iterator
from typing import Any

import cpprb
import numpy as np

from bench.peers.task import Ready, Task, Works, scenes_of, timed
from bench.scenes import Ends

NUM_BATCHES = 4  # different ones that a writer goes round
BETA = 0.0  # the weights are not used


def environment(task: Task) -> dict[str, Any]:
    return {
        name: {"shape": shape or 1, "dtype": np.dtype(dtype)} for name, (shape, dtype) in task.steps.columns.items()
    }


def buffer(task: Task) -> Any:
    """A buffer full of steps with random priorities."""
    if task.exponent:
        return filled(cpprb.PrioritizedReplayBuffer(task.items, environment(task), alpha=task.exponent), task)
    return filled(cpprb.ReplayBuffer(task.items, environment(task)), task)


def filled(made: Any, task: Task) -> Any:
    rng = np.random.default_rng(1)
    n = max(1, min(1000, 400_000 // task.steps.step_bytes))
    rows = task.steps.stacked(n, rng)
    for _ in range(task.items // n + 1):
        if task.exponent:
            made.add(**rows, priorities=1 - rng.random(n))
        else:
            made.add(**rows)
    return made


# --- one process -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def insert(task: Task) -> Iterator[Ready]:
    rng = np.random.default_rng(2)
    steps = task.steps.separate(task.steps.num_steps, rng)
    made = buffer(task)
    if task.exponent:
        steps = [{**step, "priorities": float(p)} for step, p in zip(steps, 1 - rng.random(len(steps)), strict=True)]
    yield Ready("add(**step)", timed(lambda step: made.add(**step), steps))


@contextlib.contextmanager
def insert_stacked(task: Task) -> Iterator[Ready]:
    rng = np.random.default_rng(2)
    batches = [task.steps.stacked(task.batch, rng) for _ in range(NUM_BATCHES)]
    made = buffer(task)
    if task.exponent:
        batches = [{**batch, "priorities": 1 - rng.random(task.batch)} for batch in batches]
    yield Ready(f"add of {task.batch} stacked", timed(lambda batch: made.add(**batch), batches))


@contextlib.contextmanager
def insert_dicts(task: Task) -> Iterator[Ready]:
    """Each call adds a batch of dicts, which its caller stacks 64 at a time."""
    steps = task.steps.separate(task.batch, np.random.default_rng(2))
    made = buffer(task)

    def add(steps: list[dict[str, Any]]) -> None:
        for first in range(0, len(steps), 64):
            part = steps[first : first + 64]
            made.add(**{name: np.asarray([step[name] for step in part]) for name in part[0]})

    yield Ready(f"add of {min(64, task.batch)} stacked by its caller", timed(add, [steps]))


@contextlib.contextmanager
def sample(task: Task) -> Iterator[Ready]:
    made = buffer(task)
    yield Ready(f"sample({task.batch})", timed(made.sample, [task.batch]))


@contextlib.contextmanager
def update(task: Task) -> Iterator[Ready]:
    made = buffer(task)
    rng = np.random.default_rng(3)
    pairs = [(made.sample(task.batch)["indexes"], 1 - rng.random(task.batch)) for _ in range(512)]
    yield Ready("update_priorities", timed(lambda pair: made.update_priorities(*pair), pairs))


# --- many processes --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def processes(task: Task) -> Iterator[tuple[str, Ends]]:
    env = environment(task)
    if task.exponent:
        made = cpprb.MPPrioritizedReplayBuffer(task.items, env, alpha=task.exponent)
    else:
        made = cpprb.MPReplayBuffer(task.items, env)
    filled(made, task)

    def learn() -> int:
        if task.exponent:
            batch = made.sample(task.batch, BETA)
            made.update_priorities(batch["indexes"], np.abs(batch["reward"][:, 0]))
        else:
            made.sample(task.batch)
        return task.batch

    yield "multi-process buffer, add(**step)", Ends(lambda at: lambda step: made.add(**step), lambda at: learn)


WORKS: Works = {
    "insert": insert,
    "insert stacked": insert_stacked,
    "insert dicts": insert_dicts,
    "sample": sample,
    "update": update,
    **scenes_of(processes, "writers", "mixed", "beside", "attached"),
}
