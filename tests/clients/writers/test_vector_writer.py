"""A vector writer makes what N single writers make: any rules, any ends of episodes, any way of stepping."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shmreplay as sr
from tests.clients.writers.twins import SIGNATURE, Twins, finals, rows
from tests.support.tables import TableMaker

RULES: dict[str, list[Any]] = {
    "transition": [sr.Transition()],
    "n-step": [sr.NStep(3, stack={"observation": 2})],
    "sequence": [sr.Sequence(4, period=2)],
    "overlapping": [sr.Sequence(3, period=1, burn_in=1)],
    "unroll": [sr.Unroll(3)],
    "across": [sr.Window({"action": (0, 4)}, at_end="skip", across_episodes=True)],
    "episode": [sr.Episode()],
    "pattern": [sr.Pattern({"x": ("action", -1)}, conditions=[sr.when.step_index % 2 == 0])],
    "priorities": [sr.NStep(2, priority="reward")],
    "two": [sr.NStep(2), sr.NStep(3, priority=2.0)],
    "none": [],
}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    rules=st.sampled_from(sorted(RULES)),
    num_streams=st.sampled_from([1, 2, 3, 5, 7]),
    chunk_steps=st.sampled_from([1, 3, 64]),
)
def test_it_is_equal_item_by_item_to_single_writers(
    make_table: TableMaker, data: st.DataObject, rules: str, num_streams: int, chunk_steps: int
) -> None:
    # Small enough for the chunk pool to go round, and for items to be evicted.
    options: dict[str, Any] = {"signature": SIGNATURE, "chunk_steps": chunk_steps, "capacity_steps": 120}
    twins = Twins(
        (make_table(25, **options), make_table(25, **options)), num_streams, history=24, patterns=RULES[rules]
    )
    every = st.lists(st.booleans(), min_size=num_streams, max_size=num_streams)
    length = np.zeros(num_streams, np.int64)  # of each stream's episode

    def some(chances: Any = every) -> Any:
        return np.array(data.draw(chances), np.bool_)

    for number in range(data.draw(st.integers(1, 30))):
        streams = data.draw(st.permutations(range(num_streams)))
        owners = np.array(streams[: data.draw(st.integers(1, num_streams))])
        is_whole = data.draw(st.booleans())
        owners = np.arange(num_streams) if is_whole else owners
        masked = data.draw(st.booleans())
        mask = np.ones(len(owners), np.bool_)
        if masked:
            mask = some(st.lists(st.booleans(), min_size=len(owners), max_size=len(owners)))
        does_end, truncates = some(), some()
        values = rows(100 * owners + number, terminated=(does_end & ~truncates)[owners], truncated=truncates[owners])
        twins.append(values, mask=mask if masked else None, streams=None if is_whole else owners)
        stepped = np.zeros(num_streams, np.bool_)
        stepped[owners[mask]] = True
        length += stepped
        if data.draw(st.booleans()) and not RULES[rules]:
            twins.create_items(length >= 2, length=2, priorities=np.arange(num_streams) + 1.0)
        over = (stepped & (does_end | truncates)) | (length >= 20)
        if over.any():
            needs_final = (over & ~(does_end & ~truncates)).any()
            final = finals(1000 * np.arange(num_streams)) if needs_final or data.draw(st.booleans()) else None
            clears = data.draw(st.booleans()) or rules in ("episode", "across")
            twins.end_episodes(over, final, clear_history=clears)
            length[over] = 0
    twins.check()
    twins.close()
    assert twins.tables[0]._arena.check() == []


@pytest.mark.parametrize("chunk_steps", [1, 3, 64])
@pytest.mark.one_quick
def test_streams_that_end_and_step_at_random_go_round_the_chunk_pool(
    make_table: TableMaker, rng: np.random.Generator, chunk_steps: int
) -> None:
    options: dict[str, Any] = {"signature": SIGNATURE, "chunk_steps": chunk_steps, "capacity_steps": 600}
    twins = Twins((make_table(50, **options), make_table(50, **options)), 7, patterns=[sr.NStep(3)])
    steps = 0
    capacity = sum(twins.tables[0]._arena.stats()[name] for name in ("num_chunks",)) * chunk_steps
    while steps < 4 * capacity:
        owners = rng.permutation(7)[: rng.integers(1, 8)]
        ends = rng.random(7) < 0.2
        twins.append(rows(steps + owners, terminated=ends[owners]), streams=owners)
        steps += len(owners)
        mask = np.zeros(7, np.bool_)
        mask[owners] = ends[owners]
        twins.end_episodes(mask, finals(-steps - np.arange(7)))
    twins.check()
    twins.close()


def test_rows_left_open_are_finished_by_the_next_append(make_table: TableMaker) -> None:
    tables = make_table(100, signature=SIGNATURE), make_table(100, signature=SIGNATURE)
    twins = Twins(tables, 3, patterns=[sr.Transition()])
    for k in range(3):
        values = rows(10 * np.arange(3) + k)
        first = {name: values[name] for name in ("observation", "action")}
        rest = {name: values[name] for name in ("reward", "terminated", "truncated")}
        keys = twins.vector.append(first, partial=True)
        assert not keys.any()
        twins.vector.append(rest)
        for i, writer in enumerate(twins.singles):
            writer.append({name: value[i] for name, value in values.items()})
    twins.check()
    twins.close()
