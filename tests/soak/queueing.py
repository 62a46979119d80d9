"""Processes at the two ends of a queue."""

from typing import Any, NoReturn

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.soak.worker import Worker, only_late
from tests.support.tables import numbers, step, steps


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
        only_late(error)
        return False
    return True


def consume(worker: Worker) -> NoReturn:
    """Takes items out of the queue, each once."""
    table = worker.table("queue")
    while True:
        n = int(worker.rng.integers(1, 5))
        worker.log.say("consume", n)
        try:
            batch = table.sample(n, timeout_s=0.5, at_least=1)
        except sr.ShmReplayError as error:
            only_late(error)
            drawn = getattr(error, "batch", None)
            assert drawn is None or len(drawn) == 0, "one is enough, and it raised with one"
            worker.log.say("consumed")
            continue
        worker.log.say("consumed", *numbers(batch).tolist())
