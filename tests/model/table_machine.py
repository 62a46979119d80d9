"""A state machine of table operations, on a real table and the plain-Python one, compared whole after every step."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.tables.table import TableHandle
from tests.model.plain_table import Item, PlainTable, Row
from tests.support.tables import PATHS, TableMaker, by_path, check, columns_of

T = TypeVar("T")

SELECTORS = [
    sr.selectors.Fifo(),
    sr.selectors.Lifo(),
    sr.selectors.Uniform(),
    sr.selectors.Prioritized(0.0),
    sr.selectors.Prioritized(0.7),
    sr.selectors.MinHeap(),
    sr.selectors.MaxHeap(),
]
UNLIMITED = sr.rate_limiters.MinSize(1)
LIMITERS = [
    UNLIMITED,
    sr.rate_limiters.MinSize(3),
    sr.rate_limiters.RateLimiter(2.0, 2, -1.0, 9.0),
    sr.rate_limiters.RateLimiter(0.5, 1, 0.0, 4.0),
    sr.rate_limiters.RateLimiter(1.0, 4, -3.0, float("inf")),
    sr.rate_limiters.RateLimiter(1.0, 1, float("-inf"), 12.0),
]
USUAL_PRIORITIES = [0.0, 1.0, 1.0, 2.0, 1e-3, 1e6]
PRIORITIES = st.one_of(st.sampled_from(USUAL_PRIORITIES), st.floats(0, 1e9, allow_subnormal=False))
SEEDS = st.integers(0, 2**32 - 1)  # of many priorities at once: drawing each from Hypothesis takes most of the time


POSITIONS = st.lists(st.integers(0, 10**6), max_size=20)  # among the keys given so far


def attempt(call: Callable[[], T]) -> tuple[T | None, sr.RateLimitTimeout | sr.ArenaFull | None]:
    """What a call answers, and the error of one that is not admitted or finds no room."""
    try:
        return call(), None
    except (sr.RateLimitTimeout, sr.ArenaFull) as error:
        return None, error


def many_priorities(seed: int, count: int) -> list[float]:
    """Some usual ones, some of any size; it is by order and equality that they matter."""
    rng = np.random.default_rng(seed)
    any_size = rng.lognormal(0, 5, count)
    return [float(p) for p in np.where(rng.random(count) < 0.5, rng.choice(USUAL_PRIORITIES, count), any_size)]


@dataclass(frozen=True)
class Config:
    """What a table is made by. `is_tight`: its arena has fewer chunks than max_size items may need."""

    max_size: int
    sampler: sr.selectors.Selector
    remover: sr.selectors.Selector
    max_times_sampled: int
    limiter: sr.rate_limiters.RateLimiter
    item_steps: int
    chunk_steps: int
    is_tight: bool
    on_full: str | None


@st.composite
def configs(draw: st.DrawFn, *, item_steps: int) -> Config:
    """Tables of all samplers and removers; one in four is a queue or a stack."""
    is_tight = draw(st.booleans())
    max_size = draw(st.sampled_from([30, 60, 100] if is_tight else [1, 2, 3, 5, 13]))
    on_full = draw(st.sampled_from([None, None, "wait", "error"])) if is_tight else None
    # A tight arena has two dozen chunks: of few steps each, or it would have room enough.
    chunk_steps = draw(st.sampled_from([1, 1, 2, 3] if is_tight else [1, 2, 3, 8]))
    if draw(st.integers(0, 3)) == 0:
        is_queue = draw(st.booleans())
        selector = sr.selectors.Fifo() if is_queue else sr.selectors.Lifo()
        room = sr.rate_limiters.Queue(max_size) if is_queue else sr.rate_limiters.Stack(max_size)
        return Config(max_size, selector, selector, 1, room, item_steps, chunk_steps, is_tight, on_full)
    times = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
    # Where items go for want of room, what a limiter admits would hang on when each one went.
    limiter = UNLIMITED if is_tight else draw(st.sampled_from(LIMITERS))
    sampler, remover = draw(st.sampled_from(SELECTORS)), draw(st.sampled_from(SELECTORS))
    return Config(max_size, sampler, remover, times, limiter, item_steps, chunk_steps, is_tight, on_full)


class TableMachine(RuleBasedStateMachine):
    """What tables of one-step items and of spans have in common."""

    item_steps = 1

    def __init__(self, make_table: TableMaker, seed: int) -> None:
        super().__init__()
        self._make_table = make_table
        self._seed = seed
        self._given: list[int] = []  # every key ever given
        self._episodes: dict[object, int] = {}
        self._n = 0

    def _start(self, config: Config) -> None:
        note(f"{config}")
        self.config = config
        self.table: TableHandle = self._make_table(
            config.max_size,
            seed=self._seed,
            sampler=config.sampler,
            remover=config.remover,
            max_times_sampled=config.max_times_sampled,
            rate_limiter=config.limiter,
            item_steps=config.item_steps,
            chunk_steps=config.chunk_steps,
            capacity_steps=config.item_steps if config.is_tight else None,
            on_full=config.on_full,
            max_streams=2,
            max_sessions=2,
        )
        self.plain = PlainTable(
            config.max_size, config.sampler, config.remover, config.max_times_sampled, config.limiter
        )
        self.keeps_items = config.max_times_sampled > 0 or config.on_full is not None

    def teardown(self) -> None:
        self._make_table.finish()

    # --- what the table did, told to the plain one ---------------------------------------------------------------

    def _numbers(self, count: int) -> list[int]:
        self._n += count
        return list(range(self._n - count, self._n))

    def _gone(self) -> list[Item]:
        """Items of the plain table that the real one has no longer."""
        live = set(self.table.keys().tolist())
        return [item for item in self.plain.items if item.key not in live]

    def _lost_for_room(self) -> int:
        """Notes the items that went because a chunk was needed; only tight arenas of tables that evict lose any."""
        lost = self.table.info().evicted_for_room - self.plain.counters.evicted_for_room
        assert lost == 0 or (self.config.is_tight and not self.keeps_items)
        return lost

    def _made_room(self) -> None:
        """Notes that items went for a chunk: the step that wanted it took it, even if its item was not admitted."""
        if self._lost_for_room() > 0:
            for item in self._gone():
                self.plain.evict(item, for_room=True)

    def _took(self, key: int, rows: tuple[Row, ...], priority: float | None, episode: object, first_step: int) -> None:
        """One item went in: the room it needed was made before it, and one may have been too many after it."""
        self._made_room()
        assert self.plain.can_insert()
        self._append(key, rows, priority, episode, first_step)
        if len(self.plain.items) > self.plain.max_size:
            chosen = self.plain.pick(self.config.remover)
            self.plain.evict(self._gone()[0] if chosen is None else chosen)

    def _append(self, key: int, rows: tuple[Row, ...], priority: float | None, episode: object, at: int) -> None:
        assert key not in self._given
        self._given.append(key)
        self.plain.append(key, rows, priority, episode, at)

    def _explains(self, error: object) -> bool:
        """Whether a refused insert says why: the limiter, a pause, or want of room in a table that keeps its items."""
        text = str(error)
        if not self.plain.can_insert():
            return "the rate limiter: " in text or "the queue is full" in text
        assert self.keeps_items
        assert self.config.is_tight
        if self.config.on_full == "error":
            return isinstance(error, sr.ArenaFull)
        return "no room for more steps" in text

    def _some_keys(self, positions: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([self._given[p % len(self._given)] for p in positions], np.int64)

    # --- sampling ------------------------------------------------------------------------------------------------

    @rule(n=st.integers(1, 20), at_least=st.integers(1, 20), count=st.booleans())
    def sample(self, n: int, at_least: int, count: bool) -> None:
        at_least = min(at_least, n)
        try:
            batch: Batch | None = self.table.sample(n, timeout_s=0, at_least=at_least, count=count)
            assert batch is not None
            assert at_least <= len(batch) <= n
        except sr.RateLimitTimeout as error:
            batch = error.batch
            assert batch is None or 0 < len(batch) < at_least
        done = 0 if batch is None else len(batch)
        if batch is not None:
            drawn = [self._drew(batch, i, count) for i in range(done)]
            self._compare_data(batch, drawn)
        assert done == n or not self._may_draw(count)

    def _may_draw(self, count: bool) -> bool:
        return self.plain.can_sample() if count else len(self.plain.items) > 0

    @rule(n=st.integers(1, 20), count=st.booleans())
    def sample_without_replacement(self, n: int, count: bool) -> None:
        # An item that goes with its only sample comes once as it is: such a table waits for more.
        self._sample_distinct(n, count, may_wait=count and self.config.max_times_sampled == 1)

    @precondition(lambda self: isinstance(self.config.sampler, (sr.selectors.Uniform, sr.selectors.Prioritized)))
    @rule(n=st.integers(1, 10), world_size=st.integers(2, 4), rank=st.integers(0, 3), count=st.booleans())
    def sample_a_part(self, n: int, world_size: int, rank: int, count: bool) -> None:
        num_slots = 2 ** self.config.max_size.bit_length()  # the low bits of a key
        rank %= world_size
        others = [item for item in self.plain.items if item.key % num_slots % world_size != rank]
        self._sample_distinct(n, count, others=others, part=(rank, world_size))

    def _sample_distinct(
        self, n: int, count: bool, may_wait: bool = False, others: Sequence[Item] = (), **part: Any
    ) -> None:
        there = len(self.plain.drawable(others))
        batch, error = None, None
        try:
            batch = self.table.sample(n, timeout_s=0, count=count, replacement=False, **part)
        except (sr.RateLimitTimeout, ValueError) as raised:
            batch, error = getattr(raised, "batch", None), raised
        drawn: list[Item] = []
        if batch is not None:
            for i, key in enumerate(batch.keys.tolist()):
                taken = [*others, *drawn]
                assert key in [item.key for item in self.plain.drawable(taken)]
                drawn.append(self._drew(batch, i, count, taken))
            self._compare_data(batch, drawn)
        if error is None:
            assert len(drawn) == n
        elif isinstance(error, sr.RateLimitTimeout):
            assert not self._may_draw(count)
        else:
            assert not may_wait
            assert n > (there if not drawn else len(drawn))
            assert not drawn or not self.plain.drawable([*others, *drawn])

    def _drew(self, batch: Batch, i: int, count: bool, taken: Sequence[Item] = ()) -> Item:
        """One draw of a batch: checked against the plain table, then done there."""
        assert self._may_draw(count)
        item = self.plain.find(int(batch.keys[i]))
        assert item is not None
        chosen = self.plain.pick(self.config.sampler, taken)
        assert chosen is None or item is chosen
        assert batch.table_size[i] == len(self.plain.items)
        assert batch.priorities[i] == item.priority
        assert batch.probabilities[i] == pytest.approx(self.plain.probability(item), rel=1e-9)
        assert batch.probabilities[i] > 0
        assert batch.ages[i] == self.plain.age(item)
        if count:
            self.plain.sampled(item)
        assert batch.times_sampled[i] == item.times_sampled
        return item

    def _compare_data(self, batch: Batch, items: list[Item]) -> None:
        """Every byte, mask and length of a batch, and where each item comes from."""
        assert batch.steps.tolist() == [item.step for item in items]
        for item, episode in zip(items, batch.episodes.tolist(), strict=True):
            assert self._episodes.setdefault(item.episode, episode) == episode
        assert len(set(self._episodes.values())) == len(self._episodes)
        ns = np.zeros((len(items), self.item_steps), np.int64)
        for i, item in enumerate(items):
            ns[i, : len(item.rows)] = [row.n for row in item.rows]
        for path in PATHS:
            has = np.zeros(ns.shape, bool)
            for i, item in enumerate(items):
                has[i, : len(item.rows)] = [path in row.has for row in item.rows]
            expected = columns_of(ns)[path]
            expected[~has] = 0
            if self.item_steps == 1:
                expected, has = expected[:, 0], has[:, 0]
            np.testing.assert_array_equal(by_path(batch.data)[path], expected)
            np.testing.assert_array_equal(by_path(batch.mask)[path], has)
            np.testing.assert_array_equal(by_path(batch.lengths)[path], has.reshape(len(items), -1).sum(1))

    # --- changing ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._given)
    @rule(positions=POSITIONS, seed=SEEDS)
    def update_priorities(self, positions: list[int], seed: int) -> None:
        keys = self._some_keys(positions)
        priorities = many_priorities(seed, len(keys))
        updated = sum(self.plain.update(int(key), p) for key, p in zip(keys, priorities, strict=True))
        assert self.table.update_priorities(keys, priorities) == updated

    @precondition(lambda self: self._given)
    @rule(positions=st.lists(st.integers(0, 10**6), max_size=6))
    def delete(self, positions: list[int]) -> None:
        keys = self._some_keys(positions)
        assert self.table.delete(keys) == sum(self.plain.delete(int(key)) for key in keys)

    @precondition(lambda self: self._given)
    @rule(positions=POSITIONS)
    def get(self, positions: list[int]) -> None:
        keys = self._some_keys(positions)
        live = [item for key in keys if (item := self.plain.find(int(key))) is not None]
        batch = self.table.get(keys)
        assert batch.keys.tolist() == [item.key for item in live]
        if live:
            self._compare_data(batch, live)

    @rule(chance=st.integers(0, 9))
    def reset(self, chance: int) -> None:
        if chance > 0:
            return  # emptying a table often would leave little to test
        self.table.reset()
        self.plain.reset()

    @precondition(lambda self: not self.config.is_tight and not self.config.limiter.count_deletes)
    @rule(limiter=st.sampled_from(LIMITERS), rebase=st.booleans())
    def set_rate_limiter(self, limiter: sr.rate_limiters.RateLimiter, rebase: bool) -> None:
        self.table.set_rate_limiter(limiter, rebase=rebase)
        self.plain.set_limiter(limiter, rebase)

    @precondition(lambda self: isinstance(self.config.sampler, sr.selectors.Prioritized))
    @rule(exponent=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
    def set_priority_exponent(self, exponent: float) -> None:
        self.table.set_priority_exponent(exponent)
        self.plain.sampler = sr.selectors.Prioritized(exponent)

    @rule(inserts=st.booleans(), samples=st.booleans())
    def pause_and_look(self, inserts: bool, samples: bool) -> None:
        self.table.pause(inserts=inserts, samples=samples)
        self.plain.paused_inserts, self.plain.paused_samples = inserts, samples
        self.matches()
        if inserts:
            # A step needs a chunk before its item needs admission.
            with pytest.raises((sr.RateLimitTimeout, sr.ArenaFull), match=r"inserts are paused|no free chunk"):
                self._try_to_insert()
            self._made_room()
        if samples:
            with pytest.raises(sr.RateLimitTimeout, match="samples are paused"):
                self.table.sample(1, timeout_s=0)
        self.table.resume()
        self.plain.paused_inserts = self.plain.paused_samples = False

    def _try_to_insert(self) -> None:
        raise NotImplementedError

    @rule()
    def rebuild(self) -> None:
        """Everything derived is made anew from the records: nothing may change."""
        self.table._arena.rebuild()

    # --- comparing -----------------------------------------------------------------------------------------------

    @invariant()
    def matches(self) -> None:
        if not hasattr(self, "plain"):
            return
        table, plain = self.table, self.plain
        assert check(table) == []
        assert table.keys().tolist() == [item.key for item in plain.items]
        info = asdict(table.info())
        expected = {**asdict(plain.counters), "size": len(plain.items), "num_episodes": plain.num_episodes}
        assert {name: info[name] for name in expected} == expected
        assert info["difference"] == pytest.approx(plain.difference)
        priorities = [item.priority for item in plain.items]
        assert info["max_priority"] == max(priorities, default=0)
        assert info["min_priority"] == min((p for p in priorities if p > 0), default=0)
        assert info["sum_priority"] == pytest.approx(sum(priorities))
        assert len(table) == len(plain.items)
        assert [table.can_insert(n) for n in (1, 3)] == [plain.can_insert(n) for n in (1, 3)]
        assert table.can_sample(1) == plain.can_sample(1)
        if plain.items:
            batch = table.get(table.keys())
            self._compare_data(batch, plain.items)
            assert batch.priorities.tolist() == priorities
            assert batch.times_sampled.tolist() == [item.times_sampled for item in plain.items]
