"""Stable-Baselines3: its replay buffer of transitions, one thread."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from bench.peers.task import LeftOut, Ready, Task, Works, timed

torch.set_num_threads(1)


def buffer(task: Task) -> Any:
    """A full buffer."""
    observation = spaces.Box(0, 1, (task.steps.observation,), np.float32)
    made = ReplayBuffer(task.items, observation, spaces.Discrete(18), device="cpu", handle_timeout_termination=False)
    n = max(1, min(1000, 400_000 // task.steps.step_bytes, task.items))
    rows = task.steps.stacked(n, np.random.default_rng(2))
    infos: list[dict[str, Any]] = [{}]
    for i in range(task.items):
        step = [rows[name][i % n : i % n + 1] for name in ("observation", "next_observation", "action", "reward")]
        made.add(*step, rows["terminated"][i % n : i % n + 1], infos)
    return made


@contextlib.contextmanager
def torch_batches(task: Task) -> Iterator[Ready]:
    if task.exponent:
        raise LeftOut("has no priorities")
    yield Ready(f"sample({task.batch})", timed(buffer(task).sample, [task.batch]))


WORKS: Works = {"torch batches": torch_batches}
