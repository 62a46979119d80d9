"""Processes that read, each in another way, and look at every byte of what comes."""

from typing import Any, NoReturn

import numpy as np

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.tables.table import TableHandle
from tests.soak import values
from tests.soak.tables import SPANS
from tests.soak.worker import Worker, only_late
from tests.support.tables import numbers, spans


def learn(worker: Worker) -> NoReturn:
    """Samples, looks in place, updates priorities, gets by key."""
    handles = {name: worker.table(name) for name in (*SPANS, "kept", "unrolls")}
    while True:
        name = str(worker.rng.choice(list(handles)))
        table = handles[name]
        try:
            batch = table.sample(int(worker.rng.integers(1, 40)), timeout_s=0.5)
        except sr.ShmReplayError as error:
            only_late(error)
            continue
        check_rows(name, batch)
        if worker.rng.random() < 0.3:
            _look(name, table, int(worker.rng.integers(1, 20)))
        table.update_priorities(batch.keys, worker.rng.random(len(batch)))
        if len(again := table.get(batch.keys[:5])):
            check_rows(name, again)
        worker.log.say("learned", len(batch))


def learn_ahead(worker: Worker) -> NoReturn:
    """Samplers with a thread each; most are left in the midst of their work."""
    handles = {name: worker.table(name) for name in (*SPANS, "unrolls")}
    while True:
        name = str(worker.rng.choice(list(handles)))
        table = handles[name]
        ahead = int(worker.rng.integers(0, 4))
        with table.sampler(int(worker.rng.integers(1, 40)), ahead, worker.seed(), timeout_s=0.5) as sampler:
            for _ in range(int(worker.rng.integers(1, 12))):
                try:
                    batch = next(sampler)
                except sr.ShmReplayError as error:
                    only_late(error)
                    continue
                check_rows(name, batch)
                table.update_priorities(batch.keys, worker.rng.random(len(batch)))
                worker.log.say("learned", len(batch))


def learn_mixed(worker: Worker) -> NoReturn:
    """Batches of several tables, whose priorities go back to each."""
    mix = sr.mix([(worker.table("sums"), 12), (worker.table("recent"), 6), (worker.table("bulk"), 6)], worker.seed())
    while True:
        try:
            batch = mix.sample(timeout_s=0.5)
        except sr.ShmReplayError as error:
            only_late(error)
            continue
        check_rows("sums", batch)
        mix.update_priorities(batch, worker.rng.random(len(batch)))
        worker.log.say("learned", len(batch))


def revise(worker: Worker) -> NoReturn:
    """Gives states new values; others do so with the same steps."""
    table = worker.table("unrolls")
    while True:
        try:
            batch = table.sample(int(worker.rng.integers(1, 20)), timeout_s=0.5)
        except sr.ShmReplayError as error:
            only_late(error)
            continue
        values.versions(batch)
        version = int(worker.rng.integers(1, values.VERSIONS))
        table.update_data(batch.keys, values.states_of(batch.data["n"][:, 0].tolist(), version))
        if len(again := table.get(batch.keys)):
            values.versions(again)
        worker.log.say("revised", len(batch))


def check_rows(name: str, batch: Any) -> None:
    """Every byte of a batch of that table, or of one like it."""
    if name == "unrolls":
        values.versions(batch)
    elif name in SPANS:
        _check_spans(batch)
    else:
        numbers(batch)


def items_of(name: str, batch: Batch) -> tuple[list[int], list[int]]:
    """Numbers of the items of a table that keeps, and the versions of their states; after a look at every byte."""
    if name == "stored":
        versions = values.versions(batch)
        return batch.data["n"].tolist(), versions.tolist()
    return numbers(batch).tolist(), [0] * len(batch)


def _check_spans(batch: Batch) -> None:
    for span in spans(batch):
        assert span == list(range(span[0], span[0] + len(span))), f"steps of another stream or episode: {span}"


def _look(name: str, table: TableHandle, n: int) -> None:
    """At items in place, which stay what they are as long as the view is held, but for what is mutable."""
    try:
        with table.view(n, timeout_s=0.5) as items:
            seen = [np.asarray(item.data["n"]).tolist() for item in items]
            again = [np.asarray(item.data["n"]).tolist() for item in items]
    except sr.ShmReplayError as error:
        only_late(error)
        return
    assert seen == again, f"rows of {name} changed under a view"
