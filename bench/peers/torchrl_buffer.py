"""TorchRL: a replay buffer over a tensor storage, one thread."""

import contextlib
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler, TensorDictPrioritizedReplayBuffer

from bench import frames
from bench.peers.task import LeftOut, Ready, Task, Works, timed

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
NUM_BATCHES = 4


def buffer(task: Task) -> Any:
    """A full buffer."""
    if task.exponent:
        made = prioritised(task)
    else:
        made = ReplayBuffer(storage=LazyTensorStorage(task.items), batch_size=task.batch)
    n = max(1, min(1000, 400_000 // task.steps.step_bytes, task.items))
    rows = stacked(task, n)
    for _ in range(task.items // n + 1):
        made.extend(rows)
    return made


def prioritised(task: Task) -> Any:
    try:
        return TensorDictPrioritizedReplayBuffer(
            alpha=task.exponent,
            beta=0.4,
            storage=LazyTensorStorage(task.items),
            batch_size=task.batch,
            priority_key="reward",
        )
    except RuntimeError as error:  # the trees are in an extension
        reason = f"has no prioritised buffer here: its extension does not load on torch {torch.__version__}"
        raise LeftOut(reason) from error


def stacked(task: Task, n: int) -> Any:
    rows = task.steps.stacked(n, np.random.default_rng(2))
    return TensorDict({name: torch.as_tensor(column) for name, column in rows.items()}, batch_size=[n])


@contextlib.contextmanager
def insert(task: Task) -> Iterator[Ready]:
    made = buffer(task)
    steps = list(stacked(task, task.steps.num_steps).unbind(0))
    yield Ready("add of a tensordict", timed(made.add, steps))


@contextlib.contextmanager
def insert_stacked(task: Task) -> Iterator[Ready]:
    made = buffer(task)
    yield Ready(f"extend of {task.batch}", timed(made.extend, [stacked(task, task.batch) for _ in range(NUM_BATCHES)]))


@contextlib.contextmanager
def sample(task: Task) -> Iterator[Ready]:
    made = buffer(task)
    yield Ready(f"sample({task.batch})", timed(made.sample, [task.batch]))


@contextlib.contextmanager
def torch_batches(task: Task) -> Iterator[Ready]:
    made = buffer(task)
    rows = made.sample(task.batch)
    if rows["observation"].shape != (task.batch, task.steps.observation):
        raise LeftOut(f"gave a batch of another shape, {rows}")
    yield Ready(f"sample({task.batch}), a tensordict", timed(made.sample, [task.batch]))


@contextlib.contextmanager
def update(task: Task) -> Iterator[Ready]:
    made = buffer(task)
    rng = np.random.default_rng(3)
    pairs = [
        (
            torch.as_tensor(rng.integers(0, task.items, task.batch)),
            torch.as_tensor(1 - rng.random(task.batch, np.float32)),
        )
        for _ in range(512)
    ]
    yield Ready("update_priority", timed(lambda pair: made.update_priority(*pair), pairs))


@contextlib.contextmanager
def sequences(task: Task) -> Iterator[Ready]:
    """Sequences. Its storage has steps, not items, so a sequence may begin at any step."""
    capacity = task.items * frames.PERIOD + frames.LENGTH
    sampler = SliceSampler(slice_len=frames.LENGTH, traj_key="episode", cache_values=True)
    made = ReplayBuffer(storage=LazyTensorStorage(capacity), sampler=sampler, batch_size=task.batch * frames.LENGTH)
    rows = [
        {name: torch.as_tensor(np.stack([step[name] for step in part])) for name in frames.COLUMNS}
        for steps in (frames.steps(task.kind, 400),)
        for part in (steps[first : first + frames.PERIOD] for first in range(0, 400, frames.PERIOD))
    ]
    parts = [
        TensorDict({**part, "episode": torch.zeros(frames.PERIOD, dtype=torch.int64)}, batch_size=[frames.PERIOD])
        for part in rows
    ]

    def write(seconds: float, items: int) -> float:
        done, start = 0, time.monotonic()
        while done < items or time.monotonic() < start + seconds:
            made.extend(parts[done % len(parts)])
            done += 1
        return done / (time.monotonic() - start)

    write(0, task.items + 2)

    def run(seconds: float) -> dict[str, float]:
        rate = write(seconds / 2, 1)
        done, start = 0, time.monotonic()
        while time.monotonic() < start + seconds / 2:
            made.sample()
            done += task.batch
        out = done / (time.monotonic() - start)
        step_bytes = sum(column.element_size() * column[0].numel() for column in rows[0].values())
        taken = (step_bytes + 8) * capacity  # the episode of each step too
        return {"items in a second": rate, "items out a second": out, "bytes an item": taken / task.items}

    yield Ready("extend of 40 steps and SliceSampler, raw", run)


WORKS: Works = {
    "insert": insert,
    "insert stacked": insert_stacked,
    "sample": sample,
    "torch batches": torch_batches,
    "update": update,
    "sequences": sequences,
}
