"""Several processes and one buffer: actors that are killed, a learner that begins anew, samples per insert."""

import multiprocessing
import signal
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import shmreplay as sr
from shmreplay.clients.sb3 import ReplayBuffer
from tests.clients.sb3.streams import CONTINUOUS, VECTOR, stream

SIZE, RATIO, BATCH = 2000, 4.0, 32


def buffer_at(address: str, num_envs: int = 1) -> ReplayBuffer:
    """As every process makes it."""
    limiter = sr.rate_limiters.SampleToInsertRatio(RATIO, 100, error_buffer=400)
    return ReplayBuffer(
        SIZE, VECTOR, CONTINUOUS, "cpu", n_envs=num_envs, address=address, table="shared", rate_limiter=limiter
    )


def act(address: str, seed: int) -> None:
    """Adds steps of two environments until it is killed; the limiter makes it wait."""
    buffer = buffer_at(address, num_envs=2)
    for told in stream(VECTOR, CONTINUOUS, 2, 10**9, np.random.default_rng(seed)):
        buffer.add(*told)


def learn(address: str, num_batches: int, done: Any) -> None:
    """Draws batches, and says how many of a transition's values do not fit."""
    buffer = buffer_at(address)
    wrong = 0
    for _ in range(num_batches):
        samples = buffer.sample(BATCH)
        values = (samples.observations, samples.actions, samples.next_observations)
        wrong += sum(int((value.abs() > 1).sum()) for value in values)  # of spaces from -1 to 1
    buffer.close()
    done.put(wrong)


@pytest.mark.crash
@pytest.mark.long
def test_actors_are_killed_and_the_learner_begins_anew_and_the_ratio_holds(server: sr.Server) -> None:
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    actors = [context.Process(target=act, args=(server.address, seed), daemon=True) for seed in range(3)]
    for process in actors:
        process.start()
    try:
        for number in range(2):  # two learners, one after the other
            learner = context.Process(target=learn, args=(server.address, 100, done), daemon=True)
            learner.start()
            assert done.get(timeout=100) == 0
            learner.join()
            assert learner.exitcode == 0
            actors[number].kill()
            actors[number].join()
            assert actors[number].exitcode == -signal.SIGKILL
        actors[2].kill()
        actors[2].join()
        seen = buffer_at(server.address)
        with server.client() as client:
            table = client.table("shared")
            info = table.info()
            assert info.samples == 2 * 100 * BATCH
            # Within the limiter's bounds, whoever died: inserts wait at the upper one.
            assert info.min_diff <= info.difference <= info.max_diff
            assert abs(info.inserts * RATIO - info.samples) <= RATIO * 100 + 400 + RATIO
        assert seen.size() == min(info.size, SIZE)
        seen.close()
    finally:
        for process in actors:
            process.kill()
            process.join()
        done.close()
