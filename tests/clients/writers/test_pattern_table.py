"""A full pattern table: refused with what to do, nothing half-inserted, and it goes on when patterns are freed."""

import re

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.writers.writer import Writer
from tests.support.tables import TableMaker, check

SIGNATURE = {"x": sr.ArraySpec((), "int64")}
MAX_PATTERNS = 256
FULL = re.escape(
    "the live items of the arena, and the first item of each table, were made by 256 different selections, and "
    "the arena keeps no more; let the items of some go (delete, sample, evict), or make items alike: those that show "
    "the same steps, counted from the newest, share one"
)


def select(writer: Writer, number: int) -> int:
    """An item whose selection no other number has."""
    bits = [-1 - bit for bit in range(10) if number >> bit & 1]
    return writer.create_item(trajectory={"x": writer.history["x"][[-12, *bits]]})


def fill(table: TableHandle, writer: Writer) -> list[int]:
    for k in range(12):
        writer.append({"x": k})
    return [select(writer, number) for number in range(MAX_PATTERNS)]


def test_a_selection_too_many_is_refused_until_the_items_of_one_are_gone(make_table: TableMaker) -> None:
    table = make_table(1000, signature=SIGNATURE)
    with table.writer(history=12) as writer:
        keys = fill(table, writer)
        before = table.info()
        for _ in range(2):
            with pytest.raises(sr.ShmReplayError, match=f"table {table.name!r}: create_item: {FULL}"):
                select(writer, MAX_PATTERNS)
        assert table.info().inserts == before.inserts == len(table) == MAX_PATTERNS
        assert check(table) == []
        select(writer, 7)  # a selection that is there already needs no room
        assert table.delete(keys[99:100]) == 1
        keys.append(select(writer, MAX_PATTERNS))
        with pytest.raises(sr.ShmReplayError, match=FULL):
            select(writer, MAX_PATTERNS + 1)
    batch = table.get(np.array(keys[-1:]))
    assert batch.data["x"][batch.mask["x"]].tolist() == [0, 3]
    assert check(table) == []


def test_a_step_whose_item_finds_no_place_for_its_pattern_is_not_appended(make_table: TableMaker) -> None:
    table = make_table(1000, signature=SIGNATURE)
    pairs = sr.Pattern({"x": ("x", slice(-2, None))})
    with table.writer(history=12) as writer, table.writer(patterns=[pairs]) as other:
        keys = fill(table, writer)
        other.append({"x": 100})
        with pytest.raises(sr.ShmReplayError, match=f"append: {FULL}"):
            other.append({"x": 101})
        assert (other.episode_steps, len(table)) == (1, MAX_PATTERNS)
        table.delete(keys[:1])  # the table's first: its structure is by that one
        with pytest.raises(sr.ShmReplayError, match=FULL):
            other.append({"x": 101})
        table.delete(keys[1:2])
        (key,) = other.append({"x": 101})
    batch = table.get(np.array([key]))
    assert batch.data["x"][batch.mask["x"]].tolist() == [100, 101]
    assert check(table) == []


def test_items_that_are_sampled_away_or_evicted_give_their_patterns_back(make_table: TableMaker) -> None:
    queue = make_table.queue(MAX_PATTERNS + 10, signature=SIGNATURE)
    with queue.writer(history=12) as writer:
        fill(queue, writer)
        with pytest.raises(sr.ShmReplayError, match=FULL):
            select(writer, MAX_PATTERNS)
        queue.sample(2)
        select(writer, MAX_PATTERNS)
    # Of 200 items at a time at most 201 have patterns: the oldest goes as the next one comes.
    ring = make_table(200, signature=SIGNATURE)
    with ring.writer(history=12) as writer:
        fill(ring, writer)
        select(writer, MAX_PATTERNS)
    assert len(ring) == 200
