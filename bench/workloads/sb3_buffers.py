"""How long does a training script of Stable-Baselines3 wait for its replay buffer?"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bench.contender import Absent, Contender, repeated
from bench.size import Size
from bench.workload import Workload

EPISODE = 50
BATCH = 256
Told = tuple[Any, ...]


def floats(rng: np.random.Generator) -> Any:
    """17 floats and 6 of an action, as HalfCheetah has them; the least of its buffers is 20,000 transitions."""
    from gymnasium import spaces

    observations = spaces.Box(-1, 1, (17,), np.float32)
    actions = spaces.Box(-1, 1, (6,), np.float32)
    return observations, actions, rng.random((1001, 1, 17), np.float32), rng.random((1, 6), np.float32), 20_000


def images(rng: np.random.Generator) -> Any:
    """Four frames of 84 x 84, as Atari has them."""
    from gymnasium import spaces

    observations = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    values = rng.integers(0, 256, (101, 1, 4, 84, 84)).astype(np.uint8)
    return observations, spaces.Discrete(6), values, np.zeros((1, 1), np.int64), 2_000


def steps(values: Any, action: Any) -> list[Told]:
    """Arguments of `add`, from one end of an episode to the next."""
    ends = [np.array([t % EPISODE == EPISODE - 1]) for t in range(len(values) - 1)]
    reward = np.zeros(1, np.float32)
    return [(values[t], values[t + 1], action, reward, ends[t], [{}]) for t in range(len(values) - 1)]


def adding(buffer: Any, told: Sequence[Told]) -> Callable[[int], int]:
    endless = itertools.cycle(told)

    def run(n: int) -> int:
        chosen = list(itertools.islice(endless, n))
        start = time.monotonic_ns()
        for arguments in chosen:
            buffer.add(*arguments)
        return time.monotonic_ns() - start

    return run


@contextlib.contextmanager
def contenders(size: Size, data: Callable[..., Any], call: str) -> Iterator[Sequence[Contender | Absent]]:
    try:
        from stable_baselines3.common.buffers import ReplayBuffer as TheirBuffer

        from shmreplay.clients.sb3 import ReplayBuffer
    except ImportError:
        yield [Absent("ReplayBuffer needs stable-baselines3")]
        return
    observations, actions, values, action, num = data(np.random.default_rng(7))
    told = steps(values, action)
    buffers = [made(num, observations, actions, "cpu") for made in (ReplayBuffer, TheirBuffer)]
    try:
        runs = []
        for buffer in buffers:
            for arguments in itertools.islice(itertools.cycle(told), num):
                buffer.add(*arguments)
            runs.append(adding(buffer, told) if call == "add" else repeated(buffer.sample, BATCH))
        yield [
            Contender(f"clients.sb3.ReplayBuffer.{call}", "ours", runs[0]),
            Contender(f"stable_baselines3 ReplayBuffer.{call}", "peer", runs[1]),
        ]
    finally:
        buffers[0].close()


WORKLOADS = tuple(
    Workload(
        f"sb3_{call}_{name}",
        f"How long does `{call}` of a replay buffer of Stable-Baselines3 take, and ours in its place, with "
        f"observations of {what}?",
        functools.partial(contenders, data=data, call=call),
        "W20",
        items_per_call=BATCH if call == "sample" else 1,
        in_quick=False,
    )
    for name, what, data in (("floats", "17 floats", floats), ("images", "4 frames of 84 x 84", images))
    for call in ("add", "sample")
)
