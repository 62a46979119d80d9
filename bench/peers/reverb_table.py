"""Reverb: a table in a server. In the same process for what one process does, else in a process of its own."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import reverb
import tensorflow as tf

from bench.peers.task import LeftOut, Ready, Task, Works

SLICE_S = 0.1
FILL_CHUNK = 1000
MAX_WRITERS = 16  # a client has threads of its own; hundreds of them take the machine down
IN_FLIGHT = ((64, 1), (256, 1), (1000, 1), (1000, 2))  # samples a worker asks for ahead, workers
TRY_S = 0.5


def signature(task: Task) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec(shape, dtype) for name, (shape, dtype) in task.steps.columns.items()}


def table(task: Task) -> reverb.Table:
    sampler = reverb.selectors.Prioritized(task.exponent) if task.exponent else reverb.selectors.Uniform()
    limiter = reverb.rate_limiters.MinSize(1)
    return reverb.Table("t", sampler, reverb.selectors.Fifo(), task.items, limiter, signature=signature(task))


def typed_steps(task: Task, seed: int) -> list[dict[str, Any]]:
    """As its signature has them: a float of Python's would be taken for a double."""
    steps = task.steps.separate(task.steps.num_steps, np.random.default_rng(seed))
    columns = task.steps.columns
    return [{name: np.asarray(value, columns[name][1]) for name, value in step.items()} for step in steps]


def structured_writer(client: Any, task: Task) -> Any:
    """The fastest way in: items by a pattern, made without a call of Python's for each."""
    reference = reverb.structured_writer.create_reference_step(signature(task))
    pattern = {name: reference[name][-1] for name in task.steps.columns}
    return client.structured_writer([reverb.structured_writer.create_config(pattern, "t", [])])


@contextlib.contextmanager
def full_server(task: Task) -> Iterator[tuple[Any, Any]]:
    """A server in this process whose table is full, and a client of it."""
    server = reverb.Server([table(task)])
    try:
        client = server.localhost_client()
        steps = typed_steps(task, 1)
        writer = structured_writer(client, task)
        for i in range(task.items + 1):
            writer.append(steps[i % len(steps)])
            if i % FILL_CHUNK == 0:
                writer.flush()
        writer.flush()
        yield server, client
    finally:
        server.stop()


@contextlib.contextmanager
def insert(task: Task) -> Iterator[Ready]:
    if task.exponent:
        raise LeftOut("has no priorities in its structured writer")
    with full_server(task) as (_, client):
        steps = itertools.cycle(typed_steps(task, 2))
        writer = structured_writer(client, task)

        def run(n: int) -> int:
            some = list(itertools.islice(steps, n))
            start = time.monotonic_ns()
            for step in some:
                writer.append(step)
            writer.flush()
            return time.monotonic_ns() - start

        yield Ready("structured writer, in process", run, SLICE_S)


@contextlib.contextmanager
def sample(task: Task) -> Iterator[Ready]:
    with full_server(task) as (server, _):
        name, batches = fastest(f"localhost:{server.port}", task)
        yield Ready(f"{name}, in process", runs(batches), SLICE_S)


def runs(batches: Iterator[Any]) -> Callable[[int], int]:
    def run(n: int) -> int:
        for _ in range(4):
            next(batches)  # what was fetched while others were measured
        start = time.monotonic_ns()
        for _ in range(n):
            next(batches)
        return time.monotonic_ns() - start

    return run


def fastest(address: str, task: Task) -> tuple[str, Iterator[Any]]:
    """The fastest of some ways to read batches, each tried for a while, and what it is called."""
    tried = []
    for kind in (reverb.TimestepDataset, reverb.TrajectoryDataset):
        for in_flight, workers in IN_FLIGHT:
            dataset = kind.from_table_signature(
                address, "t", max_in_flight_samples_per_worker=in_flight, num_workers_per_iterator=workers
            )
            batches = dataset.batch(task.batch).as_numpy_iterator()
            name = f"{kind.__name__}, {workers} x {in_flight} in flight"
            for _ in range(4):
                next(batches)
            count, start = 0, time.monotonic()
            while time.monotonic() < start + TRY_S:
                next(batches)
                count += 1
            tried.append((count / (time.monotonic() - start), name, dataset))
            del batches
    _, name, dataset = max(tried, key=lambda one: one[0])
    return name, dataset.batch(task.batch).as_numpy_iterator()


@contextlib.contextmanager
def update(task: Task) -> Iterator[Ready]:
    with full_server(task) as (server, client):
        batches = fastest(f"localhost:{server.port}", task)[1]
        keys = [np.asarray(next(batches).info.key).ravel() for _ in range(64)]
        rng = np.random.default_rng(3)
        updates = [dict(zip(some.tolist(), 1 - rng.random(len(some)), strict=True)) for some in keys]
        endless = itertools.cycle(updates)

        def run(n: int) -> int:
            some = list(itertools.islice(endless, n))
            start = time.monotonic_ns()
            for priorities in some:
                client.mutate_priorities("t", priorities)
            return time.monotonic_ns() - start

        yield Ready("mutate_priorities, in process", run, SLICE_S)


WORKS: Works = {"insert": insert, "sample": sample, "update": update}
