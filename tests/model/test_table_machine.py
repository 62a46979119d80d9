"""Random operations on real tables against the plain-Python one, compared whole after every step."""

import functools

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

import shmreplay as sr
from tests.model.plain_table import Row
from tests.model.plain_writer import PlainWriter
from tests.model.table_machine import PRIORITIES, SEEDS, Config, TableMachine, attempt, configs, many_priorities
from tests.support.rounds import rounds
from tests.support.tables import PATHS, TableMaker, part_of_step, step, steps


class StepsMachine(TableMachine):
    """One-step items, by insert and insert_batch."""

    @initialize(config=configs(item_steps=1))
    def start(self, config: Config) -> None:
        self._start(config)

    @rule(priority=st.none() | PRIORITIES)
    def insert(self, priority: float | None) -> None:
        [n] = self._numbers(1)
        key, refusal = attempt(lambda: self.table.insert(step(n), priority, timeout_s=0))
        if key is None:
            assert self._explains(refusal)
            assert self._lost_for_room() == 0
            return
        self._took(key, (Row(n, frozenset(PATHS)),), priority, n, 0)

    def _try_to_insert(self) -> None:
        self.table.insert(step(self._numbers(1)[0]), timeout_s=0)

    @rule(count=st.integers(0, 80), seed=SEEDS)
    def insert_batch(self, count: int, seed: int) -> None:
        ns = self._numbers(count)
        priorities = many_priorities(seed, count)
        keys, refusal = attempt(lambda: self.table.insert_batch(steps(ns), priorities, timeout_s=0))
        if keys is None:
            assert refusal is not None
            keys = refusal.keys
        assert keys is not None
        self._took_batch(keys.tolist(), ns, priorities)
        assert len(keys) == count if refusal is None else self._explains(refusal)

    def _took_batch(self, keys: list[int], ns: list[int], priorities: list[float]) -> None:
        lost_for_room = self._lost_for_room()
        live = set(self.table.keys().tolist())
        for key, n, priority in zip(keys, ns, priorities, strict=False):
            assert self.plain.can_insert()
            self._append(key, (Row(n, frozenset(PATHS)),), priority, n, 0)
            if lost_for_room == 0 and len(self.plain.items) > self.plain.max_size:
                # Of those that chance took it does not matter which one went first: each is an episode of its own.
                gone = (item for item in self.plain.items if item.key not in live)
                self.plain.evict(self.plain.pick(self.config.remover) or next(gone))
        if lost_for_room > 0:
            for i, item in enumerate(self._gone()):
                self.plain.evict(item, for_room=i < lost_for_room)


class SpansMachine(TableMachine):
    """Items of up to four steps, by one writer at a time."""

    item_steps = 4

    @initialize(config=configs(item_steps=4), history=st.integers(1, 6))
    def start(self, config: Config, history: int) -> None:
        self._start(config)
        self._num_writers = 0
        self._new_writer(history)

    def _new_writer(self, history: int) -> None:
        self.writer = self.table.writer(history=history)
        self._num_writers += 1
        self.pen = PlainWriter(history, self._num_writers)

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()
        super().teardown()

    @rule(history=st.integers(1, 6), chance=st.integers(0, 2))
    def take_another_writer(self, history: int, chance: int) -> None:
        if chance > 0:
            return  # writers are to grow old
        self.writer.close()
        self._new_writer(history)

    @rule(count=st.integers(1, 60), length=st.integers(1, 4), priority=st.none() | PRIORITIES)
    def write_on(self, count: int, length: int, priority: float | None) -> None:
        """Step after step, and an item of the newest ones with each."""
        for _ in range(count):
            self.append(set(), False)
            if self.pen.num_steps > 0:
                self.create_item(min(length, self.pen.num_steps), priority)

    @rule(has=st.sets(st.sampled_from(PATHS), min_size=1), partial=st.booleans())
    def append(self, has: set[str], partial: bool) -> None:
        """A whole row, or some columns of the open one, or those that it still lacks."""
        n = self._numbers(1)[0] if self.pen.open_row is None else self.pen.open_row.n
        missing = set(PATHS) - (self.pen.open_row.has if self.pen.open_row else set())
        brought = has & missing if partial else missing
        if not brought:
            return
        keys, refusal = attempt(lambda: self.writer.append(part_of_step(n, brought), partial=partial, timeout_s=0))
        if keys is None:
            assert ("no free chunk" if self.config.on_full == "error" else "no room for more steps") in str(refusal)
            assert self.config.is_tight
            assert self.keeps_items
            return
        assert keys.tolist() == []
        self._made_room()
        self.pen.append(n, brought, partial)

    @rule(length=st.integers(1, 6), priority=st.none() | PRIORITIES)
    def create_item(self, length: int, priority: float | None) -> None:
        if length > self.item_steps:
            with pytest.raises(ValueError, match=f"length is {length}; .* was declared with item_steps=4"):
                self.writer.create_item(priority, length=length, timeout_s=0)
            return
        if length > self.pen.num_steps:
            expected = f"length is {length}, but the writer holds {self.pen.num_steps} steps"
            with pytest.raises(ValueError, match=expected):
                self.writer.create_item(priority, length=length, timeout_s=0)
            return
        rows = self.pen.newest(length)
        if self.pen.lacks(rows):
            with pytest.raises(sr.SignatureMismatch, match="has no column"):
                self.writer.create_item(priority, length=length, timeout_s=0)
            return
        key, refusal = attempt(lambda: self.writer.create_item(priority, length=length, timeout_s=0))
        if key is None:
            assert self._explains(refusal)
            return
        self._took(key, rows, priority, self.pen.episode, self.pen.num_finished - (length - self.pen.num_open))

    @rule(clear_history=st.booleans())
    def end_episode(self, clear_history: bool) -> None:
        self.writer.end_episode(clear_history=clear_history)
        self.pen.end_episode(clear_history)

    def _try_to_insert(self) -> None:
        if self.pen.num_steps == 0 or self.pen.lacks(self.pen.newest(1)):
            raise sr.RateLimitTimeout("inserts are paused, and there is no step to make an item of")
        self.writer.create_item(length=1, timeout_s=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*update_priorities hit none:UserWarning")
@pytest.mark.filterwarnings("ignore:.*sampling never starts:UserWarning")
@pytest.mark.parametrize("machine", [StepsMachine, SpansMachine])
def test_a_table_does_what_the_plain_one_does(make_table: TableMaker, machine: type[TableMachine], seed: int) -> None:
    run_state_machine_as_test(
        functools.partial(machine, make_table, seed),  # type: ignore[arg-type]  # any maker of machines does
        settings=settings(
            max_examples=rounds(20, 100),
            phases=[phase for phase in Phase if phase != Phase.explain],  # which takes minutes here
        ),
    )
