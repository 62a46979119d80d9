"""Processes that keep items: they insert, change and delete their own, and know what must be there of them."""

from collections.abc import Sequence
from typing import Any, NoReturn

from tests.soak import values
from tests.soak.worker import Worker
from tests.support.tables import step, steps

KEPT_EACH = 60  # items that one keeper leaves in its table
DELETED_AT_ONCE = 20


class Own:
    """The items of one process in a table that keeps everything; what it does to them is written down."""

    def __init__(self, worker: Worker, name: str) -> None:
        self.table = worker.table(name)
        self._log = worker.log
        self._rng = worker.rng
        self._items: list[tuple[int, int]] = []  # number and key, oldest first

    def insert(self, new: Sequence[int], data: Any) -> None:
        """`data`: one step, or several as a batch."""
        self._log.say("insert", *new)
        keys = self.table.insert_batch(data).tolist() if len(new) > 1 else [self.table.insert(data)]
        self._log.say("inserted", *keys)
        self._items += zip(new, keys, strict=True)

    def some(self) -> tuple[list[int], list[int]]:
        """Numbers and keys of up to four of them."""
        chosen = {self._items[i] for i in self._rng.integers(0, len(self._items), 4)}
        return [number for number, _ in chosen], [key for _, key in chosen]

    def delete_oldest(self) -> None:
        """Those that are too many."""
        if len(self._items) <= KEPT_EACH:
            return
        old, self._items = self._items[:DELETED_AT_ONCE], self._items[DELETED_AT_ONCE:]
        self._log.say("delete", *(number for number, _ in old))
        assert self.table.delete([key for _, key in old]) == len(old)
        self._log.say("deleted", *(number for number, _ in old))


def keep(worker: Worker) -> NoReturn:
    """Plain steps, with priorities that change."""
    own = Own(worker, "kept")
    while True:
        new = worker.numbers.take(int(worker.rng.integers(1, 9)))
        own.insert(new, steps(new) if len(new) > 1 else step(new[0]))
        _, keys = own.some()
        assert own.table.update_priorities(keys, worker.rng.random(len(keys))) == len(keys)
        own.delete_oldest()


def store(worker: Worker) -> NoReturn:
    """Steps with columns of every kind, whose states change."""
    own = Own(worker, "stored")
    version = 0
    while True:
        new = worker.numbers.take(int(worker.rng.integers(1, 6)))
        own.insert(new, values.steps(new) if len(new) > 1 else values.step(new[0]))
        version = version % (values.VERSIONS - 1) + 1
        chosen, keys = own.some()
        worker.log.say("update", version, *chosen)
        assert own.table.update_data(keys, values.states_of(chosen, version)) == len(keys)
        worker.log.say("updated", version, *chosen)
        own.delete_oldest()
