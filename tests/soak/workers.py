"""The processes of a storm: each does one thing for ever, and writes down what it was told."""

import dataclasses
import logging
import os
import pathlib
import signal
import traceback
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import numpy as np

import shmreplay as sr
from shmreplay.clients.table import TableHandle
from tests.soak.ledger import Log, Numbers
from tests.tables import COLUMNS, numbers, spans, step, steps

CONNECT_S = 60.0  # a daemon that was killed is back by then
KEPT_EACH = 60  # items that one keeper leaves in its table


def tables() -> list[sr.Table]:
    """The tables of a storm: one that keeps, a queue, and two over the same steps that evict all the time."""
    shared: dict[str, Any] = {"arena": "shared", "max_streams": 128, "max_sessions": 512, "item_steps": 3}
    own: dict[str, Any] = {"max_streams": 256, "max_sessions": 512}
    return [
        sr.Table("kept", COLUMNS, 100_000, sampler=sr.selectors.Prioritized(0.6), chunk_steps=4, **own),
        sr.Table.queue("queue", COLUMNS, 64, **own),
        sr.Table("sums", COLUMNS, 300, sampler=sr.selectors.Prioritized(0.7), remover=sr.selectors.MinHeap(), **shared),
        sr.Table("recent", COLUMNS, 200, **shared),
    ]


class Worker:
    """What a process has in hand. `ident` is given to no other process of the storm."""

    def __init__(self, client: sr.Client, ident: int, log: Log, seed: int) -> None:
        self.client = client
        self.numbers = Numbers(ident)
        self.log = log
        self.rng = np.random.default_rng([seed, ident])

    def table(self, name: str) -> TableHandle:
        return self.client.table(name, seed=int(self.rng.integers(2**31)))


def keep(worker: Worker) -> NoReturn:
    """Inserts, updates and deletes its own items of a table that keeps everything."""
    table = worker.table("kept")
    own: list[tuple[int, int]] = []  # number and key
    while True:
        new = worker.numbers.take(int(worker.rng.integers(1, 9)))
        worker.log.say("insert", *new)
        keys = table.insert_batch(steps(new)).tolist() if len(new) > 1 else [table.insert(step(new[0]))]
        worker.log.say("inserted", *keys)
        own += zip(new, keys, strict=True)
        some = [own[i][1] for i in worker.rng.integers(0, len(own), 4)]
        assert table.update_priorities(some, worker.rng.random(4)) == len(some)
        if len(own) > KEPT_EACH:
            old, own = own[:20], own[20:]
            worker.log.say("delete", *(number for number, _ in old))
            assert table.delete([key for _, key in old]) == len(old)
            worker.log.say("deleted", *(number for number, _ in old))


def produce(worker: Worker) -> NoReturn:
    """Feeds the queue."""
    table = worker.table("queue")
    while True:
        new = worker.numbers.take(int(worker.rng.integers(1, 4)))
        worker.log.say("insert", *new)
        if len(new) == 1:
            while (only := step(new[0])) and not _went_in(table, only):
                pass
        else:
            table.insert_batch(steps(new))
        worker.log.say("inserted_numbers", *new)


def _went_in(table: TableHandle, only: dict[str, Any]) -> bool:
    try:
        table.insert(only, timeout_s=0.5)
    except sr.ShmReplayError as error:
        _only_late(error)
        return False
    return True


def _only_late(error: sr.ShmReplayError) -> None:
    """A call with a timeout may end by it: for want of admission, or while the lock's holder is stopped."""
    if not isinstance(error, sr.RateLimitTimeout) and "kept the arena's lock" not in str(error):
        raise error
    batch = getattr(error, "batch", None)
    if batch is not None and len(batch):
        raise error


def consume(worker: Worker) -> NoReturn:
    """Takes items out of the queue, each once."""
    table = worker.table("queue")
    while True:
        n = int(worker.rng.integers(1, 5))
        worker.log.say("consume", n)
        try:
            batch = table.sample(n, timeout_s=0.5, at_least=1)
        except sr.ShmReplayError as error:
            _only_late(error)
            worker.log.say("consumed")
            continue
        worker.log.say("consumed", *numbers(batch).tolist())


def act(worker: Worker) -> NoReturn:
    """Episodes of one stream, which windows make items of, in two tables at once."""
    table = worker.table("sums")
    patterns = [sr.Sequence(3), dataclasses.replace(sr.Sequence(3, period=2), table="recent")]
    while True:
        with table.writer(history=8, patterns=patterns) as writer:
            for _ in range(int(worker.rng.integers(1, 4))):
                episode = worker.numbers.take(int(worker.rng.integers(1, 12)))
                for number in episode:
                    writer.append(step(number), priority=float(worker.rng.random()))
                    worker.log.say("appended", number)
                writer.end_episode()


def act_in_many(worker: Worker) -> NoReturn:
    """Steps of several environments at once, by one call."""
    table = worker.table("sums")
    num_streams = 3
    while True:
        patterns = [sr.Sequence(3), dataclasses.replace(sr.Sequence(3, period=2), table="recent")]
        with table.vector_writer(num_streams, history=8, patterns=patterns) as writer:
            for _ in range(3):
                length = int(worker.rng.integers(3, 12))
                episodes = np.array([worker.numbers.take(length) for _ in range(num_streams)])
                for t in range(length):
                    writer.append(steps(episodes[:, t]), priority=float(worker.rng.random()))
                    worker.log.say("appended", *episodes[:, t].tolist())
                writer.end_episodes(np.ones(num_streams, bool))


def learn(worker: Worker) -> NoReturn:
    """Samples, looks at every byte of what comes, updates priorities, gets by key."""
    names = ("sums", "recent", "kept")
    handles = {name: worker.table(name) for name in names}
    while True:
        name = names[int(worker.rng.integers(len(names)))]
        table = handles[name]
        try:
            batch = table.sample(int(worker.rng.integers(1, 40)), timeout_s=0.5)
        except sr.ShmReplayError as error:
            _only_late(error)
            continue
        _check_rows(name, batch)
        if worker.rng.random() < 0.3:
            _look(name, table, int(worker.rng.integers(1, 20)))
        table.update_priorities(batch.keys, worker.rng.random(len(batch)))
        if (again := table.get(batch.keys[:5])) is not None and len(again):
            _check_rows(name, again)
        worker.log.say("learned", len(batch))


def _look(name: str, table: TableHandle, n: int) -> None:
    """At items in place, which stay what they are as long as the view is held."""
    try:
        with table.view(n, timeout_s=0.5) as items:
            seen = [np.asarray(item.data["n"]).tolist() for item in items]
            again = [np.asarray(item.data["n"]).tolist() for item in items]
    except sr.ShmReplayError as error:
        _only_late(error)
        return
    assert seen == again, f"rows of {name} changed under a view"


def _check_rows(name: str, batch: Any) -> None:
    if name == "kept":
        numbers(batch)
        return
    for span in spans(batch):
        assert span == list(range(span[0], span[0] + len(span))), f"steps of another stream or episode: {span}"


ROLES: dict[str, Callable[[Worker], NoReturn]] = {
    "keep": keep,
    "produce": produce,
    "consume": consume,
    "act": act,
    "act in many": act_in_many,
    "learn": learn,
}


def run(role: str, client: sr.Client | str, ident: int, path: pathlib.Path, seed: int) -> NoReturn:
    """In the forked process: works until a signal ends it. Whatever it raises goes into a file beside its log."""
    log = Log(path)
    signal.signal(signal.SIGTERM, _end)
    # In a storm many are gone by then, and many are stopped.
    warnings.filterwarnings("ignore", "table .*: update_priorities hit none", UserWarning)
    logging.getLogger("shmreplay").setLevel(logging.ERROR)
    try:
        if isinstance(client, str):
            client = sr.connect(client, timeout_s=CONNECT_S)
        ROLES[role](Worker(client, ident, log, seed))
    except SystemExit:
        os._exit(0)
    except BaseException:  # noqa: BLE001  # told to the storm, which fails with it
        path.with_suffix(".failed").write_text(f"{role} {ident}\n{traceback.format_exc()}")
        os._exit(1)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit
