"""What does a recorder add to a step of vector environments?"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import shmreplay as sr
from bench.contender import Absent, Contender, repeated
from bench.size import Size
from bench.workload import Workload

ITEMS = 100_000
OBSERVATION, ACTION = 17, 6  # float32 and float32, as HalfCheetah has them
EPISODE = 1000


@contextlib.contextmanager
def contenders(size: Size, num_envs: int) -> Iterator[Sequence[Contender | Absent]]:
    try:
        from gymnasium import spaces
        from gymnasium.vector import AutoresetMode, VectorEnv

        from shmreplay.clients.gymnasium import VectorRecorder, signature
    except ImportError:
        yield [Absent("VectorRecorder.step needs gymnasium")]
        return

    class Ready(VectorEnv[Any, Any, Any]):
        """Environments that answer with what they have ready. Their episodes end one after the other."""

        def __init__(self) -> None:
            self.num_envs = num_envs
            self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
            self.single_observation_space = spaces.Box(-1, 1, (OBSERVATION,), np.float32)
            self.single_action_space = spaces.Box(-1, 1, (ACTION,), np.float32)
            rng = np.random.default_rng(4)
            self.observation = rng.random((num_envs, OBSERVATION), np.float32)
            self.rewards = rng.random(num_envs)  # float64, as gymnasium's vector environments give them
            self.no = np.zeros(num_envs, bool)
            self.at = 0

        def reset(self, **options: Any) -> Any:
            return self.observation, {}

        def step(self, actions: Any) -> Any:
            self.at += 1
            truncated = self.no
            if self.at % (EPISODE // num_envs) == 0:
                truncated = np.arange(num_envs) == self.at // (EPISODE // num_envs) % num_envs
            return self.observation, self.rewards, self.no, truncated, {}

    envs = Ready()
    table = sr.Table("bench", signature(envs), min(ITEMS, size.items), item=sr.NStep(3), max_streams=num_envs)
    actions = np.zeros((num_envs, ACTION), np.float32)
    with (
        sr.Server([table]) as server,
        server.client() as client,
        client.table("bench").vector_writer(num_envs) as writer,
    ):
        recorder = VectorRecorder(envs, writer)
        recorder.reset()
        yield [
            Contender("VectorRecorder.step", "ours", repeated(recorder.step, actions)),
            Contender("the environments' own step", "limit", repeated(Ready().step, actions)),
        ]


WORKLOADS = tuple(
    Workload(
        f"recorder_{num_envs}",
        f"How long does a step of {num_envs} environments take with a VectorRecorder, whose rows make items of 3 "
        "steps?",
        functools.partial(contenders, num_envs=num_envs),
        "W19",
        items_per_call=num_envs,
        in_quick=False,
    )
    for num_envs in (4, 64)
)
