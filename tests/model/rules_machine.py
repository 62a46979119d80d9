"""A state machine of writers whose rules feed several tables over the same steps, against plain-Python ones.

Every example begins with an arena whose chunks were all used at least three times over.
"""

import itertools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.tables.table import TableHandle
from tests.model.plain_rules import PATTERNS, Made, PlainStream, Rule, n_step, window
from tests.model.plain_table import PlainTable
from tests.model.table_machine import POSITIONS, SEEDS, attempt, many_priorities
from tests.support.tables import check

SIGNATURE = {"observation": sr.ArraySpec((), "int64"), "action": sr.ArraySpec((), "int64")}
ITEM_STEPS = 8
NUM_WRITERS = 2
WRAPS = 3
QUEUE_SIZE = 16  # more than one call can make for it, so that its items always go in together
REMOVERS = [sr.selectors.Fifo(), sr.selectors.Lifo(), sr.selectors.MinHeap(), sr.selectors.MaxHeap()]
SAMPLERS = [*REMOVERS, sr.selectors.Uniform(), sr.selectors.Prioritized(0.7)]
RANGES: list[dict[str, tuple[int, int]]] = [
    {"observation": (-1, 3), "action": (0, 2)},
    {"observation": (0, 4), "action": (0, 4)},
    {"observation": (-3, 1), "action": (0, 1)},
]
_names = itertools.count()

WINDOWS = st.builds(
    window,
    st.sampled_from(RANGES),
    st.sampled_from(["skip", "short", "zeros"]),
    st.sampled_from(["skip", "shorten", "pad", "shift"]),
    st.integers(1, 3),
)
RULES = st.one_of(WINDOWS, st.builds(n_step, st.integers(1, 4)), st.sampled_from(PATTERNS))


@dataclass
class Fed:
    """A table, the plain one beside it, and what its items must show, by key."""

    table: TableHandle
    plain: PlainTable
    made: dict[int, Made]  # also of items that are gone


class RulesMachine(RuleBasedStateMachine):
    """Three tables over one arena and two writers, each of which makes items of all three tables' rules."""

    def __init__(self, server: sr.Server, seed: int) -> None:
        super().__init__()
        self._client = server.client()
        self._seed = seed
        self._number = 0

    @initialize(
        rules=st.lists(RULES, min_size=3, max_size=3),
        samplers=st.lists(st.sampled_from(SAMPLERS), min_size=3, max_size=3),
        removers=st.lists(st.sampled_from(REMOVERS), min_size=3, max_size=3),
        max_sizes=st.lists(st.sampled_from([1, 2, 7, 30]), min_size=3, max_size=3),
        chunk_steps=st.sampled_from([1, 2, 3, 8]),
        is_tight=st.booleans(),
        has_queue=st.booleans(),
    )
    def start(
        self,
        rules: list[Rule],
        samplers: list[Any],
        removers: list[Any],
        max_sizes: list[int],
        chunk_steps: int,
        is_tight: bool,
        has_queue: bool,
    ) -> None:
        """In a tight arena items go for room alone, in another one for their tables' size alone."""
        note(f"{rules} {samplers} {removers} {max_sizes} {chunk_steps} {is_tight} {has_queue}")
        number = next(_names)
        shared: dict[str, Any] = {"arena": f"m{number}", "chunk_steps": chunk_steps, "item_steps": ITEM_STEPS}
        shared |= {"max_streams": NUM_WRITERS, "max_sessions": 2, "capacity_steps": ITEM_STEPS if is_tight else None}
        specs = [
            sr.Table(
                f"m{number}-{i}", SIGNATURE, 1000 if is_tight else size, sampler=sampler, remover=remover, **shared
            )
            for i, (size, sampler, remover) in enumerate(zip(max_sizes, samplers, removers, strict=True))
        ]
        if has_queue:
            specs[2] = sr.Table.queue(f"m{number}-2", SIGNATURE, QUEUE_SIZE, **shared)
        self._client.create_tables(specs)
        self.is_tight, self.has_queue = is_tight, has_queue
        self.fed = [
            Fed(
                self._client.table(spec.name, self._seed),
                PlainTable(spec.max_size, spec.sampler, spec.remover, spec.max_times_sampled, spec.rate_limiter),
                {},
            )
            for spec in specs
        ]
        made = [rule.make(spec.name) for rule, spec in zip(rules, specs, strict=True)]
        self.writers = [self.fed[0].table.writer(patterns=made) for _ in range(NUM_WRITERS)]
        self.streams = [PlainStream(i, [rule.plain for rule in rules]) for i in range(NUM_WRITERS)]
        self._wrap()

    def _wrap(self) -> None:
        """Writes until every chunk of the arena was used three times over."""
        stats = self.fed[0].table._arena.stats()
        rows = WRAPS * stats["num_chunks"] * stats["chunk_steps"]
        rng = np.random.default_rng(self._seed)
        while self._number <= rows + stats["chunk_steps"]:
            which = int(rng.integers(NUM_WRITERS))
            for _ in range(int(rng.integers(1, 14))):
                self._append(which, float(rng.integers(5)))
                if self.has_queue and len(self.fed[2].table) > QUEUE_SIZE // 2:
                    self._sample(self.fed[2], len(self.fed[2].table), count=True)
            self._end(which, bool(rng.integers(2)), bool(rng.integers(4)), 1.0)
        assert self._number > rows

    def teardown(self) -> None:
        for writer in getattr(self, "writers", ()):
            writer.close()
        self._client.close()

    # --- writing -------------------------------------------------------------------------------------------------

    @rule(which=st.integers(0, NUM_WRITERS - 1), count=st.integers(1, 12), seed=SEEDS)
    def append(self, which: int, count: int, seed: int) -> None:
        for priority in many_priorities(seed, count):
            self._append(which, priority)

    @rule(which=st.integers(0, NUM_WRITERS - 1), has_final=st.booleans(), clear=st.booleans(), seed=SEEDS)
    def end_episode(self, which: int, has_final: bool, clear: bool, seed: int) -> None:
        self._end(which, has_final, clear, many_priorities(seed, 1)[0])

    def _append(self, which: int, priority: float) -> None:
        number, stream = self._number + 1, self.streams[which]
        due = stream.next_step(number)
        step = {"observation": number, "action": number}
        keys = self._admitted(due, lambda: self.writers[which].append(step, priority=priority, timeout_s=0))
        if keys is None:
            return
        self._number = number
        stream.take(number)
        self._took(keys, due, priority)

    def _end(self, which: int, has_final: bool, clear: bool, priority: float) -> None:
        stream = self.streams[which]
        if stream.length == 0:
            return
        final = self._number + 1 if has_final else None
        due = stream.next_end(final)
        step = {"observation": final} if has_final else None
        keys = self._admitted(due, lambda: self.writers[which].end_episode(step, clear, priority, timeout_s=0))
        if keys is None:
            return
        self._number += has_final
        stream.end(final, clear=clear)
        self._took(keys, due, priority)

    def _admitted(self, due: list[list[Made]], call: Any) -> Any:
        """The keys that a call gave; None if it was not admitted, and then for a reason."""
        keys, refusal = attempt(call)
        if "the rate limiter" in str(refusal) or "the queue is full" in str(refusal):
            assert due[2]
            assert not self.fed[2].plain.can_insert(len(due[2]))
        elif refusal is not None:
            assert "no room for more steps" in str(refusal)
            assert self.is_tight
            assert self.has_queue
        if keys is None:
            self._made_room()
        return keys

    def _made_room(self) -> None:
        """Notes what went because a chunk was wanted: in tables that keep their items nothing."""
        for fed in self.fed:
            live = set(fed.table.keys().tolist())
            gone = [item for item in fed.plain.items if item.key not in live]
            lost = fed.table.info().evicted_for_room - fed.plain.counters.evicted_for_room
            assert lost == 0 or (self.is_tight and fed.plain.max_times_sampled == 0)
            for item in gone if lost else []:
                fed.plain.evict(item, for_room=True)

    def _took(self, keys: Any, due: list[list[Made]], priority: float) -> None:
        """The items went in, those of one rule after those of the rule before it."""
        assert len(keys) == sum(map(len, due))
        self._made_room()
        given = iter(keys.tolist())
        for fed, items in zip(self.fed, due, strict=True):
            for made in items:
                key = next(given)
                assert key not in fed.made
                fed.made[key] = made
                fed.plain.append(key, (), priority, made.episode, 0)
                if len(fed.plain.items) > fed.plain.max_size:
                    chosen = fed.plain.pick(fed.plain.remover)
                    assert chosen is not None
                    fed.plain.evict(chosen)

    # --- reading and changing ------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 2), n=st.integers(1, 20), count=st.booleans())
    def sample(self, which: int, n: int, count: bool) -> None:
        self._sample(self.fed[which], n, count)

    def _sample(self, fed: Fed, n: int, count: bool) -> None:
        batch, refusal = attempt(lambda: fed.table.sample(n, timeout_s=0, count=count))
        if refusal is not None:
            assert not (fed.plain.can_sample(n) if count else fed.plain.items)
            assert isinstance(refusal, sr.RateLimitTimeout)
            batch = refusal.batch
        if batch is None:
            return
        assert len(batch) == n or refusal is not None
        for i, key in enumerate(batch.keys.tolist()):
            item = fed.plain.find(key)
            assert item is not None
            chosen = fed.plain.pick(fed.plain.sampler)
            assert chosen is None or item is chosen
            assert batch.probabilities[i] == pytest.approx(fed.plain.probability(item), rel=1e-9)
            if count:
                fed.plain.sampled(item)
        compare(batch, fed)

    @rule(which=st.integers(0, 2), positions=POSITIONS, seed=SEEDS)
    def update_priorities(self, which: int, positions: list[int], seed: int) -> None:
        fed = self.fed[which]
        keys = self._some_keys(fed, positions)
        priorities = many_priorities(seed, len(keys))
        updated = sum(fed.plain.update(int(key), p) for key, p in zip(keys, priorities, strict=True))
        assert fed.table.update_priorities(keys, priorities) == updated

    @rule(which=st.integers(0, 2), positions=POSITIONS)
    def delete(self, which: int, positions: list[int]) -> None:
        """Removing from one table hurts no other."""
        fed = self.fed[which]
        keys = self._some_keys(fed, positions)
        assert fed.table.delete(keys) == sum(fed.plain.delete(int(key)) for key in keys)

    @rule(which=st.integers(0, 2), chance=st.integers(0, 5))
    def reset(self, which: int, chance: int) -> None:
        if chance == 0:
            self.fed[which].table.reset()
            self.fed[which].plain.reset()

    @rule()
    def rebuild(self) -> None:
        self.fed[0].table._arena.rebuild()

    @staticmethod
    def _some_keys(fed: Fed, positions: list[int]) -> Any:
        given = list(fed.made)
        return np.array([given[p % len(given)] for p in positions if given], np.int64)

    # --- comparing -----------------------------------------------------------------------------------------------

    @invariant()
    def matches(self) -> None:
        for fed in getattr(self, "fed", ()):
            assert fed.table.keys().tolist() == [item.key for item in fed.plain.items]
            info = asdict(fed.table.info())
            expected = {
                **asdict(fed.plain.counters),
                "size": len(fed.plain.items),
                "num_episodes": fed.plain.num_episodes,
            }
            assert {name: info[name] for name in expected} == expected
            compare(fed.table.get(fed.table.keys()), fed)
        if hasattr(self, "fed"):
            assert check(self.fed[0].table) == []


def compare(batch: Batch, fed: Fed) -> None:
    """Whether every item shows what it must: data, mask, and zeros where something is missing."""
    made = [fed.made[key] for key in batch.keys.tolist()]
    if not made:
        return
    for name, values in batch.data.items():
        real, width = batch.mask[name].reshape(len(made), -1), int(np.prod(values.shape[1:]))
        rows = [[*item.shown[name], *[None] * (width - len(item.shown[name]))] for item in made]
        assert values.reshape(len(made), -1).tolist() == [[step or 0 for step in row] for row in rows]
        assert real.tolist() == [[step is not None for step in row] for row in rows]
    ids = dict(zip((item.episode for item in made), batch.episodes.tolist(), strict=True))
    assert [ids[item.episode] for item in made] == batch.episodes.tolist()
