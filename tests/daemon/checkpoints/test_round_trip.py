"""Save, restore, compare: tables that Hypothesis makes, in every mixture of selectors, limiters and windows."""

import dataclasses
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.daemon.checkpoints.saved import draws, facts
from tests.support.tables import COLUMNS, step, steps

SELECTORS = ("Fifo", "Lifo", "Uniform", "MinHeap", "MaxHeap")
WINDOWS = (
    sr.Transition(("x",)),
    sr.NStep(3, next=("x",), summed=("half",)),
    sr.NStep(2, stack={"x": 3}, next=("x",), summed=("half",)),
    sr.Sequence(4, period=2),
    sr.Unroll(3, bootstrap=("x",)),
)


class Servers(NamedTuple):
    """One that saves, and one that restores."""

    saving: sr.Client
    restoring: sr.Client


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with (
        tempfile.TemporaryDirectory() as directory,
        sr.Server(checkpoint_dir=directory) as first,
        sr.Server() as second,
        first.client() as saving,
        second.client() as restoring,
    ):
        yield Servers(saving, restoring)


def drop_all(client: sr.Client) -> None:
    for name in client.tables():
        client.drop_table(name)


@st.composite
def selector(draw: st.DrawFn) -> sr.selectors.Selector:
    kind = draw(st.sampled_from((*SELECTORS, "Prioritized")))
    if kind == "Prioritized":
        return sr.selectors.Prioritized(draw(st.sampled_from((0.0, 0.6, 1.0))))
    made: sr.selectors.Selector = getattr(sr.selectors, kind)()
    return made


@st.composite
def tables(draw: st.DrawFn) -> sr.Table:
    """A table of any kind, of few items, so that it wraps."""
    size = draw(st.integers(3, 30))
    options: dict[str, Any] = {
        "max_streams": 4,
        "max_sessions": 8,
        "chunk_steps": draw(st.sampled_from((None, 1, 3, 8))),
    }
    kind = draw(st.sampled_from(("plain", "queue", "stack", "consuming")))
    if kind in ("queue", "stack"):
        return getattr(sr.Table, kind)("t", COLUMNS, size, **options)  # type: ignore[no-any-return]
    if kind == "consuming":
        options["max_times_sampled"] = draw(st.integers(1, 3))
    limiter = draw(
        st.sampled_from(
            (
                sr.rate_limiters.MinSize(2),
                sr.rate_limiters.SampleToInsertRatio(2.0, 3, error_buffer=100),
            )
        )
    )
    return sr.Table(
        "t", COLUMNS, size, sampler=draw(selector()), remover=draw(selector()), rate_limiter=limiter, **options
    )


def work(table: TableHandle, rng: np.random.Generator, actions: int) -> None:
    """Does something to the table, over and over; what the limiter does not admit now is left out."""
    number = 0
    for _ in range(actions):
        try:
            match int(rng.integers(7)):
                case 0:
                    table.insert(step(number), float(rng.integers(0, 4)), timeout_s=0)
                    number += 1
                case 1 | 2:
                    n = int(rng.integers(1, 9))
                    table.insert_batch(steps(np.arange(number, number + n)), rng.random(n), timeout_s=0)
                    number += n
                case 3:
                    table.sample(int(rng.integers(1, 5)), timeout_s=0)
                case 4 if len(table):
                    keys = rng.choice(table.keys(), 2)
                    table.update_priorities(keys, rng.integers(0, 3, 2).astype(float))
                case 5 if len(table):
                    table.delete(rng.choice(table.keys(), 1))
                case _ if rng.random() < 0.1:
                    table.reset()
        except sr.RateLimitTimeout:
            number += 10


@settings(max_examples=40)
@given(spec=tables(), seed=st.integers(0, 2**32 - 1), actions=st.integers(0, 60))
def test_a_table_of_any_kind_is_the_same_after_a_restore(
    servers: Servers, spec: sr.Table, seed: int, actions: int
) -> None:
    drop_all(servers.saving)
    drop_all(servers.restoring)
    servers.saving.create_tables([spec])
    table = servers.saving.table("t", seed=0)
    work(table, np.random.default_rng(seed), actions)
    path = servers.saving.checkpoint()
    found = servers.restoring.restore(path, [spec])
    assert (found["tables"], found["notes"]) == (["t"], [])
    table, restored = (client.table("t", seed=0) for client in servers)  # samplers of the same numbers from here on
    assert facts(restored) == facts(table)
    assert draws(restored) == draws(table)
    assert restored._arena.check() == []
    # Both go on alike: the same evictions, by removers of the same random numbers, and the same verdicts.
    for handle in (table, restored):
        work(handle, np.random.default_rng(seed + 1), 30)
    same = ("data", "priorities", "times_sampled", "ages", "can_insert", "can_sample", "info")
    first, second = facts(table), facts(restored)
    assert {name: first.get(name) for name in same} == {name: second.get(name) for name in same}
    assert restored._arena.check() == []


@pytest.mark.parametrize("chunk_steps", [2, 5, 16])
def test_windows_of_several_tables_in_one_arena_are_the_same_after_a_restore(
    rng: np.random.Generator, chunk_steps: int
) -> None:
    windows = rng.choice(len(WINDOWS), 3, replace=False).tolist()
    options: dict[str, Any] = {"arena": "shared", "chunk_steps": chunk_steps, "max_streams": 4, "max_sessions": 8}
    specs = [sr.Table(f"t{i}", COLUMNS, int(rng.integers(3, 40)), item_steps=8, **options) for i in windows]
    patterns = [dataclasses.replace(WINDOWS[i], table=spec.name) for i, spec in zip(windows, specs, strict=True)]
    with (
        tempfile.TemporaryDirectory() as directory,
        sr.Server(specs, checkpoint_dir=directory) as server,
        server.client() as client,
    ):
        handles = [client.table(spec.name, seed=1) for spec in specs]
        with handles[0].writer(history=16, patterns=patterns) as writer:
            for n in range(int(rng.integers(1, 80))):
                writer.append(step(n))
                if rng.random() < 0.15:
                    writer.end_episode({"n": n, "x": np.zeros(5, np.float32)} if rng.random() < 0.5 else None)
            client.checkpoint()
            before = [(facts(handle), draws(handle)) for handle in handles]
        with sr.Server(restore=directory) as second, second.client() as other:
            after = [other.table(spec.name, seed=1) for spec in specs]
            assert [(facts(handle), draws(handle)) for handle in after] == before
            assert after[0]._arena.check() == []


def test_keys_live_on_and_those_of_the_lost_life_hit_nothing(servers: Servers) -> None:
    drop_all(servers.saving)
    drop_all(servers.restoring)
    spec = sr.Table("t", COLUMNS, 8, max_streams=4, max_sessions=8, sampler=sr.selectors.Prioritized(1.0))
    servers.saving.create_tables([spec])
    table = servers.saving.table("t")
    keys = table.insert_batch(steps(np.arange(6)))
    path = servers.saving.checkpoint()
    lost = np.concatenate([table.insert_batch(steps(np.arange(100, 108))) for _ in range(20)])
    servers.restoring.restore(path)
    restored = servers.restoring.table("t")
    assert restored.keys().tolist() == keys.tolist()
    assert restored.update_priorities(keys, np.full(6, 3.0)) == 6
    fresh = np.concatenate([restored.insert_batch(steps(np.arange(8))) for _ in range(20)])
    assert not set(lost.tolist()) & set(fresh.tolist())
    assert not set(keys.tolist()) & set(fresh.tolist())
    with pytest.warns(UserWarning, match="none of"):
        assert restored.update_priorities(lost, np.ones(len(lost))) == 0
    assert restored.delete(lost) == 0
    assert sorted(restored.keys().tolist()) == restored.keys().tolist()


def test_what_came_after_the_checkpoint_is_not_in_it(servers: Servers) -> None:
    """Field case P4: save at N, run on, restore: exactly N rows, none twice."""
    drop_all(servers.saving)
    drop_all(servers.restoring)
    spec = sr.Table("t", COLUMNS, 1000, max_streams=4, max_sessions=8)
    servers.saving.create_tables([spec])
    table = servers.saving.table("t")
    table.insert_batch(steps(np.arange(137)))
    path = servers.saving.checkpoint()
    table.insert_batch(steps(np.arange(137, 300)))
    servers.restoring.restore(path)
    restored = servers.restoring.table("t")
    assert restored.get(restored.keys()).data["n"].tolist() == list(range(137))
    restored.insert_batch(steps(np.arange(137, 200)))
    assert restored.get(restored.keys()).data["n"].tolist() == list(range(200))


def test_a_limiter_that_was_changed_is_restored_and_said_aloud(servers: Servers) -> None:
    drop_all(servers.saving)
    drop_all(servers.restoring)
    spec = sr.Table("t", COLUMNS, 100, max_streams=4, max_sessions=8)
    servers.saving.create_tables([spec])
    table = servers.saving.table("t")
    table.insert_batch(steps(np.arange(20)))
    servers.saving.set_rate_limiter("t", sr.rate_limiters.SampleToInsertRatio(4.0, 10, error_buffer=20))
    servers.saving.pause("t", inserts=True, samples=False)
    path = servers.saving.checkpoint()
    servers.saving.resume("t")
    notes = servers.restoring.restore(path)["notes"]
    assert notes[0] == "table 't' was paused when it was saved; it is no longer paused"
    assert notes[1] == (
        "table 't': its rate limiter is that of the checkpoint: samples_per_insert 4.0 instead of 1.0, "
        "min_size_to_sample 10 instead of 1, min_diff 20.0 instead of -inf, max_diff 60.0 instead of inf"
    )
    assert facts(servers.restoring.table("t")) == facts(table)

    drop_all(servers.restoring)
    asked = sr.Table("t", COLUMNS, 100, max_streams=4, max_sessions=8, rate_limiter=sr.rate_limiters.MinSize(7))
    notes = servers.restoring.restore(path, [asked], limiters="config")["notes"]
    assert "its rate limiter is the one asked for; the checkpoint had samples_per_insert 4.0 instead of 1.0" in notes[1]
    info = servers.restoring.table("t").info()
    assert (info.min_size_to_sample, info.samples_per_insert, info.inserts) == (7, 1.0, 20)
    assert servers.restoring.tables()["t"]["spec"].rate_limiter == asked.rate_limiter


def test_tables_that_are_there_or_are_others_are_refused_before_anything_is_made(servers: Servers) -> None:
    drop_all(servers.saving)
    drop_all(servers.restoring)
    servers.saving.create_tables([sr.Table("t", COLUMNS, 100, max_streams=4, max_sessions=8)])
    path = servers.saving.checkpoint()
    with pytest.raises(ValueError, match="table 't' exists already; drop it"):
        servers.saving.restore(path)
    with pytest.raises(ValueError, match=r"table 't' of .* differs: max_size: is 100, asked for 7"):
        servers.restoring.restore(path, [sr.Table("t", COLUMNS, 7, max_streams=4, max_sessions=8)])
    with pytest.raises(ValueError, match="limiters is 'mine'; expected one of 'checkpoint', 'config'"):
        servers.restoring.restore(path, limiters="mine")
    with pytest.raises(FileNotFoundError, match="no such file"):
        servers.restoring.restore(path + ".gone")
    with tempfile.TemporaryDirectory() as empty, pytest.raises(sr.CheckpointFailed, match="there is no checkpoint in"):
        servers.restoring.restore(empty)
    assert servers.restoring.tables() == {}
