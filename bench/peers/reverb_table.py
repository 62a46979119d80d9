"""Reverb: a table in a server, which is in the same process for tasks of one process, and otherwise in its own."""

import contextlib
import itertools
import pathlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import reverb
import tensorflow as tf

from bench import frames
from bench.crowd import Tally, crowd
from bench.peers.task import LeftOut, Ready, Task, Works, scenes_of
from bench.scenes import Ends, Insert, Learn, Take

SLICE_S = 0.1
FILL_CHUNK = 1000
MAX_WRITERS = 16  # each client has its own threads, and hundreds of clients would overload the machine
IN_FLIGHT = ((64, 1), (256, 1), (1000, 1), (1000, 2))  # samples in flight for each worker, number of workers
TRY_S = 0.3


def signature(task: Task) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec(shape, dtype) for name, (shape, dtype) in task.steps.columns.items()}


def table(task: Task) -> reverb.Table:
    sampler = reverb.selectors.Prioritized(task.exponent) if task.exponent else reverb.selectors.Uniform()
    limiter = reverb.rate_limiters.MinSize(1)
    return reverb.Table("t", sampler, reverb.selectors.Fifo(), task.items, limiter, signature=signature(task))


def typed_steps(task: Task, seed: int) -> list[dict[str, Any]]:
    """Steps with the exact dtypes of the signature: Reverb would store a Python float as a double."""
    steps = task.steps.separate(task.steps.num_steps, np.random.default_rng(seed))
    columns = task.steps.columns
    return [{name: np.asarray(value, columns[name][1]) for name, value in step.items()} for step in steps]


def structured_writer(client: Any, task: Task) -> Any:
    """The fastest way to insert: a pattern makes the items, without a Python call for each."""
    reference = reverb.structured_writer.create_reference_step(signature(task))
    pattern = {name: reference[name][-1] for name in task.steps.columns}
    return client.structured_writer([reverb.structured_writer.create_config(pattern, "t", [])])


@contextlib.contextmanager
def full_server(task: Task) -> Iterator[tuple[Any, Any]]:
    """A server in this process with a full table, and a client of it."""
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

        yield Ready("structured writer, in process", run, SLICE_S, 1000)


@contextlib.contextmanager
def sample(task: Task) -> Iterator[Ready]:
    with full_server(task) as (server, _):
        name, batches = fastest(f"localhost:{server.port}", task)
        yield Ready(f"{name}, in process", runs(batches), SLICE_S, 16)


def runs(batches: Iterator[Any]) -> Callable[[int], int]:
    def run(n: int) -> int:
        for _ in range(4):
            next(batches)  # drops what was fetched while others were measured
        start = time.monotonic_ns()
        for _ in range(n):
            next(batches)
        return time.monotonic_ns() - start

    return run


def fastest(address: str, task: Task) -> tuple[str, Iterator[Any]]:
    """Tries some ways to read batches, each for TRY_S. Returns the name and the batches of the fastest."""
    tried = []
    for kind in (reverb.TimestepDataset, reverb.TrajectoryDataset):
        for in_flight, workers in IN_FLIGHT:
            made = dataset(address, kind, in_flight, workers)
            batches = made.batch(task.batch).as_numpy_iterator()
            name = f"{kind.__name__}, {workers} x {in_flight} in flight"
            for _ in range(4):
                next(batches)
            count, start = 0, time.monotonic()
            while time.monotonic() < start + TRY_S:
                next(batches)
                count += 1
            tried.append((count / (time.monotonic() - start), name, made))
            del batches
    _, name, made = max(tried, key=lambda one: one[0])
    return name, made.batch(task.batch).as_numpy_iterator()


def dataset(address: str, kind: Any, in_flight: int, workers: int) -> Any:
    return kind.from_table_signature(
        address, "t", max_in_flight_samples_per_worker=in_flight, num_workers_per_iterator=workers
    )


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


# --- many processes --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def processes(task: Task) -> Iterator[tuple[str, Ends]]:
    """A server in its own process. This process is forked many times, so it must have no threads of gRPC."""
    if task.writers > MAX_WRITERS:
        raise LeftOut(f"is measured with up to {MAX_WRITERS} writers: each has threads of its own")
    address = f"localhost:{free_port()}"

    def insert(at: int) -> Insert:
        writer = structured_writer(reverb.Client(address), task)
        return typed(task, writer.append)

    def learn(at: int) -> Learn:
        client = reverb.Client(address)
        batches = dataset(address, reverb.TimestepDataset, *IN_FLIGHT[-1]).batch(task.batch).as_numpy_iterator()

        def learn_once() -> int:
            sampled = next(batches)
            if task.exponent:
                keys = np.asarray(sampled.info.key).ravel()
                client.mutate_priorities("t", dict.fromkeys(keys.tolist(), 0.5))
            return task.batch

        return learn_once

    def serve(tally: Tally) -> None:
        server = reverb.Server([table(task)], port=int(address.rpartition(":")[2]))
        tally.add(1)
        while tally.goes_on():
            time.sleep(0.05)
        server.stop()

    def fill(tally: Tally) -> None:
        writer = structured_writer(reverb.Client(address), task)
        steps = typed_steps(task, 1)
        for i in range(task.items + 1):
            writer.append(steps[i % len(steps)])
            if i % FILL_CHUNK == 0:
                writer.flush()
        writer.flush()
        tally.add(1)

    with crowd([serve]):
        with crowd([fill]):
            pass
        yield "structured writer, server in a process of its own", Ends(insert, learn)


@contextlib.contextmanager
def waited_for(task: Task) -> Iterator[tuple[str, Ends]]:
    address = f"localhost:{free_port()}"

    def serve(tally: Tally) -> None:
        queue = reverb.Table.queue("t", task.items, signature=signature(task))
        server = reverb.Server([queue], port=int(address.rpartition(":")[2]))
        tally.add(1)
        while tally.goes_on():
            time.sleep(0.05)
        server.stop()

    def insert(at: int) -> Insert:
        writer = reverb.Client(address).trajectory_writer(1)

        def insert_once(step: dict[str, Any]) -> None:
            writer.append(step)
            writer.create_item("t", 1.0, {name: column[-1] for name, column in writer.history.items()})
            writer.flush()

        return typed(task, insert_once)

    def take(at: int) -> Take:
        items = dataset(address, reverb.TimestepDataset, 1, 1).as_numpy_iterator()
        return lambda: int(next(items).data["action"])

    with crowd([serve]):
        yield "trajectory writer and flush to TimestepDataset", Ends(insert, take=take)


@contextlib.contextmanager
def sequences(task: Task) -> Iterator[Ready]:
    """Sequences, with the server in this process."""
    signature = {name: tf.TensorSpec((frames.LENGTH, *shape), dtype) for name, (shape, dtype) in frames.COLUMNS.items()}
    limiter = reverb.rate_limiters.MinSize(1)
    selectors = (reverb.selectors.Uniform(), reverb.selectors.Fifo())
    rss = resident_bytes()
    made = reverb.Table("t", *selectors, task.items, limiter, signature=signature)
    server = reverb.Server([made])
    writer = server.localhost_client().trajectory_writer(frames.LENGTH)
    endless = itertools.cycle(frames.steps(task.kind, 400))

    def write(seconds: float, items: int) -> float:
        done, start = 0, time.monotonic()
        while done < items or time.monotonic() < start + seconds:
            for step in itertools.islice(endless, frames.PERIOD):
                writer.append(step)
            if next(appended) * frames.PERIOD >= frames.LENGTH:
                selected = {name: column[-frames.LENGTH :] for name, column in writer.history.items()}
                writer.create_item("t", 1.0, selected)
                done += 1
        writer.flush()
        return done / (time.monotonic() - start)

    appended = itertools.count(1)
    write(0, task.items * 3 // 2)
    address = f"localhost:{server.port}"
    batches = dataset(address, reverb.TrajectoryDataset, 16, 2).batch(task.batch).as_numpy_iterator()

    def run(seconds: float) -> dict[str, float]:
        rate = write(seconds / 2, 1)
        next(batches)
        done, start = 0, time.monotonic()
        while time.monotonic() < start + seconds / 2:
            next(batches)
            done += task.batch
        out = done / (time.monotonic() - start)
        return {"items in a second": rate, "items out a second": out, "bytes an item": taken / task.items}

    taken = resident_bytes() - rss
    yield Ready("trajectory writer and TrajectoryDataset, in process", run)
    server.stop()


def resident_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def typed(task: Task, insert: Insert) -> Insert:
    columns = [(name, dtype) for name, (_, dtype) in task.steps.columns.items()]
    return lambda step: insert({name: np.asarray(step[name], dtype) for name, dtype in columns})


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


WORKS: Works = {
    "insert": insert,
    "sample": sample,
    "update": update,
    "sequences": sequences,
    **scenes_of(processes, "writers", "mixed", "beside", "attached"),
    **scenes_of(waited_for, "woken"),
}
