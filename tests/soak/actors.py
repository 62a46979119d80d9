"""Processes that write episodes, each in another way."""

import dataclasses
from typing import Any, NoReturn

import numpy as np

import shmreplay as sr
from tests.soak import values
from tests.soak.tables import ITEM_STEPS
from tests.soak.worker import Worker
from tests.support.tables import step, steps


def _windows() -> list[Any]:
    """Items of two tables at once."""
    return [sr.Sequence(ITEM_STEPS), dataclasses.replace(sr.Sequence(ITEM_STEPS, period=2), table="recent")]


def act(worker: Worker) -> NoReturn:
    """One stream, of which windows make items."""
    table = worker.table("sums")
    while True:
        with table.writer(history=8, patterns=_windows()) as writer:
            for _ in range(int(worker.rng.integers(1, 4))):
                episode = worker.numbers.take(int(worker.rng.integers(1, 12)))
                for number in episode:
                    writer.append(step(number), priority=float(worker.rng.random()))
                    worker.log.say("appended", number)
                writer.end_episode()


def act_in_many(worker: Worker) -> NoReturn:
    """Several environments whose steps come at once, by one call."""
    table = worker.table("sums")
    num_streams = 3
    while True:
        with table.vector_writer(num_streams, history=8, patterns=_windows()) as writer:
            for _ in range(3):
                length = int(worker.rng.integers(3, 12))
                episodes = np.array([worker.numbers.take(length) for _ in range(num_streams)])
                for t in range(length):
                    writer.append(steps(episodes[:, t]), priority=float(worker.rng.random()))
                    worker.log.say("appended", *episodes[:, t].tolist())
                writer.end_episodes(np.ones(num_streams, bool))


def extend(worker: Worker) -> NoReturn:
    """Whole episodes by one call, some past the rate limiter."""
    table = worker.table("bulk")
    while True:
        lengths = worker.rng.integers(1, 20, int(worker.rng.integers(1, 5)))
        # A number is left out between two episodes, so that an item of both would be seen.
        episodes = [worker.numbers.take(int(length) + 1)[1:] for length in lengths]
        ends = np.zeros(lengths.sum(), bool)
        ends[np.cumsum(lengths) - 1] = True
        keys = table.extend(steps(np.concatenate(episodes)), ends, count=bool(worker.rng.random() < 0.7))
        assert len(keys) == lengths.sum()  # one begins with every step
        worker.log.say("extended", len(keys))


def unroll(worker: Worker) -> NoReturn:
    """Steps with columns of every kind, of which it makes items by hand that bring something."""
    table = worker.table("unrolls")
    while True:
        with table.writer(history=8) as writer:
            for _ in range(int(worker.rng.integers(1, 4))):
                for number in worker.numbers.take(int(worker.rng.integers(2, 12)))[1:]:
                    writer.append(values.part(number))
                    length = int(worker.rng.integers(1, min(writer.episode_steps, ITEM_STEPS) + 1))
                    goal = values.goal_of(number - length + 1)
                    writer.create_item(float(worker.rng.random()), length, values={"goal": goal})
                    worker.log.say("appended", number)
                writer.end_episode()
