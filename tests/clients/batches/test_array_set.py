"""The arrays of a batch are written to again only when nobody refers to them or to a view of them."""

import numpy as np

from shmreplay.clients.batches.aligned import is_aligned
from shmreplay.clients.batches.array_set import ArraySet, owner_of
from tests.support.tables import PATHS, TableMaker, by_path, steps


def test_arrays_are_free_once_nobody_holds_them_or_a_view(make_table: TableMaker) -> None:
    table = make_table()
    table.insert_batch(steps(np.arange(8)))
    batch = table.sample(4)
    made = ArraySet(batch)
    assert not made.is_free(), "the batch has them"
    column = batch.data["x"][1:, 2]
    del batch
    assert not made.is_free(), "a view of one is as good as the array"
    del column
    assert made.is_free()


def test_another_set_is_new_memory_at_borders_and_fits_the_batch(make_table: TableMaker) -> None:
    table = make_table()
    table.insert_batch(steps(np.arange(8)))
    first = table.sample(4)
    other = ArraySet(first).another()
    assert other.is_free()
    second = table.sample(4, out=other.out)
    for path in PATHS:
        mine, theirs = by_path(first.data)[path], by_path(second.data)[path]
        assert not np.shares_memory(mine, theirs)
        assert is_aligned(theirs)
    assert not other.is_free()


def test_the_owner_of_a_view_is_the_array_whose_memory_it_shows() -> None:
    array = np.arange(20)
    assert owner_of(array[3:][::2].reshape(-1)) is array
    assert owner_of(array) is array
