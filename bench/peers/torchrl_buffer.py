"""TorchRL: a replay buffer over a tensor storage, one thread."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer, TensorDictPrioritizedReplayBuffer

from bench.peers.task import LeftOut, Ready, Task, Works, timed

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
NUM_BATCHES = 4


def buffer(task: Task) -> Any:
    """Full."""
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
def update(task: Task) -> Iterator[Ready]:
    made = buffer(task)
    rng = np.random.default_rng(3)
    pairs = [
        (torch.as_tensor(rng.integers(0, task.items, task.batch)), torch.as_tensor(1 - rng.random(task.batch)))
        for _ in range(512)
    ]
    yield Ready("update_priority", timed(lambda pair: made.update_priority(*pair), pairs))


WORKS: Works = {"insert": insert, "insert stacked": insert_stacked, "sample": sample, "update": update}
