"""A state machine of operations on a table with columns in the heap, against a plain-Python list of items."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from tests.support.tables import TableMaker, check

COLUMNS = {
    "n": sr.ArraySpec((), "int64"),
    "packed": sr.ArraySpec((30,), "uint16", compression="lz4", mean_bytes=40),
    "ragged": sr.ArraySpec((None, 2), "uint8", mean_bytes=60),
    "maybe": sr.ArraySpec((9,), "float32", optional=True),
    "state": sr.ArraySpec((2,), "float32", mutable=True),
    "goal": sr.ArraySpec((None,), "int16", per="item", optional=True, mean_bytes=40),
}
LENGTH = 4
MAX_ROWS = 60
# Sizes of what varies: mostly small, now and then several times what is planned.
SIZES = st.one_of(st.integers(0, 20), st.integers(0, MAX_ROWS))


@dataclass
class Step:
    """A step as it was put in; `state` changes."""

    n: int
    packed: np.ndarray[Any, Any]
    ragged: np.ndarray[Any, Any]
    maybe: np.ndarray[Any, Any] | None
    state: np.ndarray[Any, Any]

    def as_dict(self) -> dict[str, Any]:
        found = {"n": self.n, "packed": self.packed, "ragged": self.ragged, "state": self.state.copy()}
        return found if self.maybe is None else {**found, "maybe": self.maybe}

    @property
    def stored_bytes(self) -> int:
        """Of what is in the heap, if nothing were compressed."""
        return self.packed.nbytes + self.ragged.nbytes + (0 if self.maybe is None else self.maybe.nbytes)


@dataclass
class Item:
    """A live item: its steps, oldest first, and what it brought."""

    key: int
    steps: list[Step]
    goal: np.ndarray[Any, Any] | None


@dataclass
class Plain:
    """The table, said as simply as it can be."""

    max_size: int
    items: list[Item] = field(default_factory=list)

    def find(self, key: int) -> Item | None:
        return next((item for item in self.items if item.key == key), None)


def new_step(n: int, size: int, is_noise: bool, has_maybe: bool) -> Step:
    """A step of that number; `is_noise`: it cannot be compressed."""
    rng = np.random.default_rng(n)
    packed = rng.integers(0, 2**16, 30, np.uint16) if is_noise else np.full(30, n % 2**16, np.uint16)
    ragged = rng.integers(0, 256, (size, 2), np.uint8)
    maybe = rng.normal(size=9).astype("f4") if has_maybe else None
    return Step(n, packed, ragged, maybe, np.array([n, -n], np.float32))


class HeapMachine(RuleBasedStateMachine):
    """One writer of spans, which bring goals; a learner that reads, deletes and writes states back."""

    def __init__(self, make_table: TableMaker, totals: dict[str, int]) -> None:
        super().__init__()
        self._make_table = make_table
        self._totals = totals
        self._n = 0
        self._given: list[int] = []
        self._evicted_for_room = 0
        self.held: deque[Step] = deque(maxlen=6)

    @initialize(
        max_size=st.sampled_from([3, 20, 40]),
        chunk_steps=st.sampled_from([1, 2, 3, 8]),
        is_tight=st.booleans(),
    )
    def start(self, max_size: int, chunk_steps: int, is_tight: bool) -> None:
        note(f"max_size={max_size} chunk_steps={chunk_steps} is_tight={is_tight}")
        self.table = self._make_table(
            max_size,
            signature=COLUMNS,
            item_steps=LENGTH,
            chunk_steps=chunk_steps,
            capacity_steps=LENGTH if is_tight else None,
            max_streams=2,
            max_sessions=2,
        )
        self.plain = Plain(max_size)
        self.writer = self.table.writer(history=6)
        self._heap_bytes = self.table.estimate().heap.num_bytes

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self._totals["wraps"] = max(self._totals.get("wraps", 0), self._totals.pop("bytes", 0) // self._heap_bytes)
            self.writer.close()
        self._make_table.finish()

    # --- writing -------------------------------------------------------------------------------------------------

    @rule(size=SIZES, is_noise=st.booleans(), has_maybe=st.booleans())
    def append(self, size: int, is_noise: bool, has_maybe: bool) -> None:
        step = new_step(self._n, size, is_noise, has_maybe)
        self.writer.append(step.as_dict(), timeout_s=5)
        self._appended(step)

    @rule(size=SIZES, is_noise=st.booleans(), has_maybe=st.booleans(), order=st.permutations(list(COLUMNS)[:5]))
    def append_bit_by_bit(self, size: int, is_noise: bool, has_maybe: bool, order: list[str]) -> None:
        step = new_step(self._n, size, is_noise, has_maybe)
        parts = step.as_dict()
        for name in order:
            if name in parts and len(parts) > 1:
                self.writer.append({name: parts.pop(name)}, partial=True, timeout_s=5)
        self.writer.append(parts, timeout_s=5)
        self._appended(step)

    def _appended(self, step: Step) -> None:
        self._n += 1
        self._totals["bytes"] = self._totals.get("bytes", 0) + step.stored_bytes
        self.held.append(step)
        self._forget_the_evicted()

    @rule(count=st.integers(1, 120), size=SIZES, length=st.integers(1, LENGTH))
    def write_on(self, count: int, size: int, length: int) -> None:
        for k in range(count):
            self.append((size * k) % MAX_ROWS, k % 3 == 0, k % 2 == 0)
            self.create_item(min(length, len(self.held)), size)

    @precondition(lambda self: len(self.held) > 0)
    @rule(length=st.integers(1, LENGTH), goal=st.none() | SIZES)
    def create_item(self, length: int, goal: int | None) -> None:
        if length > len(self.held):
            return
        value = None if goal is None else np.arange(goal, dtype=np.int16) + self._n
        values = None if value is None else {"goal": value}
        key = self.writer.create_item(length=length, values=values, timeout_s=5)
        self._given.append(key)
        self._totals["bytes"] = self._totals.get("bytes", 0) + (0 if value is None else value.nbytes)
        self.plain.items.append(Item(key, list(self.held)[-length:], value))
        self._forget_the_evicted()

    @rule()
    def end_episode(self) -> None:
        self.writer.end_episode()
        self.held.clear()

    def _forget_the_evicted(self) -> None:
        """The remover takes the oldest item; for room the oldest steps go, with every item that has one of them."""
        live = self.table.keys().tolist()
        kept = [item for item in self.plain.items if item.key in set(live)]
        gone = [item for item in self.plain.items if item.key not in set(live)]
        assert live == [item.key for item in kept]
        assert len(live) <= self.plain.max_size
        for_room = self.table.info().evicted_for_room - self._evicted_for_room
        self._evicted_for_room += for_room
        assert len(gone) - for_room in (0, 1)
        if len(gone) > for_room:
            older = [item for item in gone if all(item.key < other.key for other in kept)]
            gone.remove(older[-1])
        if gone and kept:
            assert max(item.steps[0].n for item in gone) < min(item.steps[0].n for item in kept)
        self.plain.items = kept

    # --- reading and changing ------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "plain") and self.plain.items)
    @rule(n=st.integers(1, 12), ragged=st.sampled_from(["pad", "concat"]))
    def sample(self, n: int, ragged: Any) -> None:
        batch = self.table.sample(n, timeout_s=0, ragged=ragged)
        items = [self.plain.find(int(key)) for key in batch.keys]
        self._compare(batch, [item for item in items if item is not None], ragged)
        assert None not in items

    @precondition(lambda self: self._given)
    @rule(
        positions=st.lists(st.integers(0, 10**6), min_size=1, max_size=6),
        places=st.lists(st.integers(0, LENGTH), min_size=2, max_size=2, unique=True).map(sorted),
    )
    def update_data(self, positions: list[int], places: list[int]) -> None:
        at, count = places[0], places[1] - places[0]
        keys = list(dict.fromkeys(self._given[p % len(self._given)] for p in positions))
        self._n += 1
        values = np.random.default_rng(self._n).normal(size=(len(keys), count, 2)).astype("f4")
        live = [item for key in keys if (item := self.plain.find(key)) is not None]
        assert self.table.update_data(np.array(keys), {"state": values}, at=at) == len(live)
        for key, rows in zip(keys, values, strict=True):
            if (item := self.plain.find(key)) is not None:
                for j, row in enumerate(rows):
                    if at + j < len(item.steps):
                        item.steps[at + j].state = row

    @precondition(lambda self: self._given)
    @rule(positions=st.lists(st.integers(0, 10**6), max_size=4))
    def delete(self, positions: list[int]) -> None:
        keys = [self._given[p % len(self._given)] for p in positions]
        live = {key for key in keys if self.plain.find(key) is not None}
        assert self.table.delete(np.array(keys, np.int64)) == len(live)
        self.plain.items = [item for item in self.plain.items if item.key not in live]

    @rule()
    def rebuild(self) -> None:
        """Everything derived is made anew from the records: nothing may change."""
        self.table._arena.rebuild()

    # --- comparing -----------------------------------------------------------------------------------------------

    @invariant()
    def matches(self) -> None:
        if not hasattr(self, "plain"):
            return
        assert check(self.table) == []
        batch = self.table.get(self.table.keys())
        assert batch.keys.tolist() == [item.key for item in self.plain.items]
        if self.plain.items:
            self._compare(batch, self.plain.items, "pad")
        for place, step in enumerate(self.held):
            np.testing.assert_array_equal(self.writer.history["ragged"][place].numpy(), step.ragged)
            np.testing.assert_array_equal(self.writer.history["state"][place].numpy(), step.state)

    def _compare(self, batch: Batch, items: list[Item], ragged: str) -> None:
        rows = [[*item.steps, *[None] * (LENGTH - len(item.steps))] for item in items]
        data, mask = batch.data, batch.mask
        for i, row in enumerate(rows):
            for j, step in enumerate(row):
                if step is None:
                    assert not any(data[name][i, j].any() for name in ("n", "packed", "maybe", "state"))
                    continue
                assert data["n"][i, j] == step.n
                np.testing.assert_array_equal(data["packed"][i, j], step.packed)
                np.testing.assert_array_equal(data["maybe"][i, j], np.zeros(9) if step.maybe is None else step.maybe)
                np.testing.assert_array_equal(data["state"][i, j], step.state)
        real = [[step is not None for step in row] for row in rows]
        for name in ("n", "packed", "ragged", "state"):
            assert mask[name].tolist() == real
        assert mask["maybe"].tolist() == [[s is not None and s.maybe is not None for s in row] for row in rows]
        sizes = [[[0 if s is None else len(s.ragged)] for s in row] for row in rows]
        assert batch.sizes["ragged"].tolist() == sizes
        self._compare_ragged(batch, rows, ragged)
        self._compare_goals(batch, items, ragged)

    def _compare_ragged(self, batch: Batch, rows: list[list[Step | None]], ragged: str) -> None:
        found = batch.data["ragged"]
        flat = [step for row in rows for step in row if step is not None]
        if ragged == "concat":
            np.testing.assert_array_equal(found, np.concatenate([step.ragged for step in flat]))
            return
        longest = max(len(step.ragged) for step in flat)
        assert found.shape == (len(rows), LENGTH, longest, 2)
        for i, row in enumerate(rows):
            for j, step in enumerate(row):
                expected = np.zeros((longest, 2), np.uint8)
                if step is not None:
                    expected[: len(step.ragged)] = step.ragged
                np.testing.assert_array_equal(found[i, j], expected)

    def _compare_goals(self, batch: Batch, items: list[Item], ragged: str) -> None:
        goals = [np.empty(0, np.int16) if item.goal is None else item.goal for item in items]
        assert batch.mask["goal"].tolist() == [item.goal is not None for item in items]
        assert batch.sizes["goal"].tolist() == [[len(goal)] for goal in goals]
        if ragged == "concat":
            np.testing.assert_array_equal(batch.data["goal"], np.concatenate(goals))
            return
        for i, goal in enumerate(goals):
            np.testing.assert_array_equal(batch.data["goal"][i, : len(goal)], goal)
            assert not batch.data["goal"][i, len(goal) :].any()
