"""Tables for tests of the data path: steps whose every byte follows from one number, so a batch is checked whole."""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle


def client_of(table: TableHandle | ShardedTable) -> sr.Client:
    """The client that made the handle."""
    assert isinstance(table._client, sr.Client)
    return table._client


class Pair(NamedTuple):
    """A named tuple within the steps."""

    half: Any
    odd: Any


COLUMNS = {
    "n": sr.ArraySpec((), "int64"),
    "x": sr.ArraySpec((5,), "float32"),
    "image": sr.ArraySpec((3, 2), "uint8"),
    "pair": Pair(sr.ArraySpec((), "float64"), sr.ArraySpec((), "bool")),
}
PATHS = ("n", "x", "image", "half", "odd")


def columns_of(ns: Any) -> dict[str, NDArray[Any]]:
    """What every column of the steps `ns` (int64 of any shape) holds, by its name in PATHS."""
    ns = np.asarray(ns, np.int64)
    return {
        "n": ns.copy(),
        "x": (ns[..., None] * 3 + np.arange(5)).astype(np.float32),
        "image": ((ns[..., None, None] * 7 + np.arange(6).reshape(3, 2)) % 251).astype(np.uint8),
        "half": ns / 2,
        "odd": ns % 2 == 1,
    }


def steps(ns: Any) -> dict[str, Any]:
    """The steps of those numbers, as `insert_batch` takes them."""
    found = columns_of(ns)
    return {"n": found["n"], "x": found["x"], "image": found["image"], "pair": Pair(found["half"], found["odd"])}


def step(n: int) -> dict[str, Any]:
    """One step, as `insert` and `append` take it."""
    found = columns_of(n)
    return {"n": n, "x": found["x"], "image": found["image"], "pair": Pair(float(found["half"]), bool(found["odd"]))}


def part_of_step(n: int, has: Collection[str]) -> dict[str, Any]:
    """The columns of one step that `has` names, as a partial `append` takes them."""
    whole = step(n)
    part = {name: whole[name] for name in ("n", "x", "image") if name in has}
    pair = Pair(*(value if name in has else None for name, value in zip(Pair._fields, whole["pair"], strict=True)))
    return part if pair == (None, None) else {**part, "pair": pair}


def by_path(structured: Any) -> dict[str, NDArray[Any]]:
    """The leaves of a batch's data, mask or lengths by their names in PATHS."""
    assert isinstance(structured["pair"], Pair)
    plain = {name: structured[name] for name in ("n", "x", "image")}
    return {**plain, "half": structured["pair"].half, "odd": structured["pair"].odd}


def numbers(batch: Batch) -> NDArray[np.int64]:
    """The number of each item of one-step items, after a look at every byte."""
    data = by_path(batch.data)
    expected = columns_of(data["n"])
    for path in PATHS:
        assert data[path].dtype == expected[path].dtype
        np.testing.assert_array_equal(data[path], expected[path])
        assert by_path(batch.mask)[path].tolist() == [True] * len(batch)
        assert by_path(batch.lengths)[path].tolist() == [1] * len(batch)
    return data["n"]


def spans(batch: Batch) -> list[list[int]]:
    """The numbers of each item's steps, after a look at every byte, mask and length; no step may lack a column."""
    data, mask, lengths = (by_path(tree) for tree in (batch.data, batch.mask, batch.lengths))
    real = mask["n"]
    for path in PATHS:
        expected = columns_of(data["n"])[path]
        expected[~real] = 0
        np.testing.assert_array_equal(data[path], expected)
        np.testing.assert_array_equal(mask[path], real)
        np.testing.assert_array_equal(lengths[path], real.sum(1))
    return [row[has].tolist() for row, has in zip(data["n"], real, strict=True)]


def values(table: TableHandle) -> list[int]:
    """The numbers of a table's live items, oldest first, after a look at every byte."""
    return [int(n) for n in numbers(live(table))]


def live(table: TableHandle) -> Batch:
    """A table's live items, oldest first."""
    return table.get(table.keys())


def check(table: TableHandle) -> list[str]:
    """What is wrong with the table's arena; [] if nothing."""
    return table._arena.check()


def leased(table: TableHandle) -> bool:
    """Whether this process has a lease on any of the table's chunks."""
    return table._arena.names_chunks()


def address(array: NDArray[Any]) -> int:
    """Where its first element is."""
    return int(array.__array_interface__["data"][0])


class TableMaker:
    """Makes tables with new names on a server, and checks each one's arena when the test is over.

    Their draws are repeatable, by seeds that follow from the test's.
    """

    _names = (f"t{i}" for i in itertools.count())

    def __init__(self, client: sr.Client, seed: int) -> None:
        self.client = client
        self._seed = seed
        self._made: list[TableHandle] = []

    def __call__(
        self, max_size: int = 100, *, seed: Any = None, signature: Any = COLUMNS, **options: Any
    ) -> TableHandle:
        return self._create(sr.Table, max_size, seed, signature, options)

    def queue(self, max_size: int, *, seed: Any = None, signature: Any = COLUMNS, **options: Any) -> TableHandle:
        return self._create(sr.Table.queue, max_size, seed, signature, options)

    def stack(self, max_size: int, *, seed: Any = None, signature: Any = COLUMNS, **options: Any) -> TableHandle:
        return self._create(sr.Table.stack, max_size, seed, signature, options)

    def _create(
        self, make: Callable[..., sr.Table], max_size: int, seed: Any, signature: Any, options: dict[str, Any]
    ) -> TableHandle:
        name = next(self._names)
        options = {"max_streams": 16, "max_sessions": 16, **options}
        self.client.create_tables([make(name, signature, max_size, **options)])
        self._made.append(self.client.table(name, (self._seed, len(self._made)) if seed is None else seed))
        return self._made[-1]

    def finish(self) -> None:
        """Drops the tables that are still there. Fails for one whose arena is not healthy."""
        there = self.client.tables()
        faults = {table.name: check(table) for table in self._made if table.name in there}
        self._made.clear()
        for name in faults:
            self.client.drop_table(name)
        assert not any(faults.values()), faults


@pytest.fixture(scope="session")
def running_servers() -> Iterator[list[sr.Server]]:
    """The embedded server that modules use one after the other, since a start takes half a second. [] if none runs."""
    running: list[sr.Server] = []
    yield running
    for server in running:
        server.close()


@pytest.fixture(scope="module")
def server(running_servers: list[sr.Server]) -> Iterator[sr.Server]:
    """An embedded server without tables. If the module's tests end it, the next module has another one."""
    if not running_servers:
        running_servers.append(sr.Server())
    yield running_servers[0]
    try:
        with running_servers[0].client() as client:
            if names := list(client.tables()):
                client.drop_tables(names)
    except sr.DaemonUnavailable:
        running_servers.pop().close()


@pytest.fixture
def make_table(server: sr.Server, seed: int) -> Iterator[TableMaker]:
    """Makes tables; they are checked and dropped when the test is over."""
    with server.client() as client:
        maker = TableMaker(client, seed)
        yield maker
        maker.finish()


def interleave(parts: Sequence[Sequence[int]], rng: np.random.Generator) -> list[int]:
    """A random order of all elements that keeps the order within each part."""
    owners = rng.permutation(np.repeat(np.arange(len(parts)), [len(part) for part in parts]))
    iterators = [iter(part) for part in parts]
    return [next(iterators[owner]) for owner in owners]


def filled(make_table: TableMaker, count: int = 50, **options: Any) -> TableHandle:
    """A prioritised table with the steps 0 to count - 1, of priorities 1 to count."""
    table = make_table(count, **{"sampler": sr.selectors.Prioritized(0.8), **options})
    table.insert_batch(steps(range(count)), np.arange(1.0, count + 1))
    return table
