"""Group B: ring seams, slices and the boundaries of episodes, as public bug reports of replay buffers found them wrong.

Each test's docstring names the report. Covered elsewhere: a step convention with final rows, and that items of one
writer's stream keep to it however chunks lie (`test_writers_do_not_mix`); both are in tests/clients/writers.
"""

import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Fork
from tests.support.tables import TableMaker, check, live

SIGNATURE = {"episode": sr.ArraySpec((), "int64"), "t": sr.ArraySpec((), "int64")}


def write_episodes(table: TableHandle, lengths: list[int], *, ends: bool = True) -> None:
    """Episodes 0, 1, ... of those lengths; with `ends=False` the last of them goes on."""
    with table.writer() as writer:
        for episode, length in enumerate(lengths):
            for t in range(length):
                writer.append({"episode": episode, "t": t})
            if ends or episode < len(lengths) - 1:
                writer.end_episode()


def are_contiguous(data: dict[str, NDArray[Any]]) -> bool:
    """Whether each row of a batch `[B, L]` is of one episode, one step after the other."""
    one_episode = (data["episode"] == data["episode"][:, :1]).all()
    return bool(one_episode and (np.diff(data["t"], axis=1) == 1).all())


@pytest.mark.parametrize("chunk_steps", [1, 7, 64])
def test_slices_of_an_exactly_full_and_of_a_wrapped_table_are_contiguous(
    make_table: TableMaker, chunk_steps: int
) -> None:
    """B1, pytorch/rl#1969: slices could not be drawn from a buffer that was exactly full."""
    window = sr.Sequence(50, at_start="skip", at_end="skip")
    table = make_table(
        950, signature=SIGNATURE, item=window, capacity_steps=1000, chunk_steps=chunk_steps, max_streams=1
    )
    with table.writer() as writer:
        for t in range(999):
            writer.append({"episode": 0, "t": t})
        writer.end_episode()
        writer.append({"episode": 1, "t": 0})
        assert live(table).data["t"][:, 0].tolist() == list(range(950))  # the legal starts, each once
        drawn = table.sample(20_000).data
        assert are_contiguous(drawn)
        assert np.unique(drawn["t"][:, 0]).tolist() == list(range(950))
        assert not drawn["episode"].any()
        for t in range(1, 3500):  # three times around
            writer.append({"episode": 1, "t": t})
            if t % 500 == 499:
                assert are_contiguous(table.sample(500).data)
        assert live(table).data["t"][:, 0].tolist() == list(range(3450 - 949, 3451))
    assert table.info().evicted_for_room == 0
    assert check(table) == []


def test_the_last_step_of_an_episode_is_drawn_as_often_as_any(make_table: TableMaker, seed: int) -> None:
    """B3, pytorch/rl#1774: the last step of a trajectory was never drawn."""
    window = sr.Sequence(4, at_start="skip", at_end="skip")
    table = make_table(100, signature=SIGNATURE, item=window, seed=seed)
    write_episodes(table, [10])
    counts = np.zeros(10, np.int64)
    for _ in range(7):
        counts += np.bincount(table.sample(10_000).data["t"][:, 0], minlength=10)
    assert counts[7:].tolist() == [0, 0, 0]
    assert (abs(counts[:7] - 10_000) < 400).all()
    assert live(table).data["t"].max() == 9


@pytest.mark.parametrize("at_end", ["skip", "pad"])
def test_slices_never_reach_beyond_an_episode_and_short_ones_are_as_configured(
    make_table: TableMaker, at_end: Any
) -> None:
    """B4, pytorch/rl#1873 and #1874: slice sampling gave indices outside of the storage."""
    lengths = list(range(1, 51))
    window = sr.Sequence(3, at_start="skip", at_end=at_end)
    table = make_table(sum(lengths), signature=SIGNATURE, item=window, chunk_steps=8)
    write_episodes(table, lengths)
    starts = {episode: max(length - 2, 0) if at_end == "skip" else length for episode, length in enumerate(lengths)}
    assert len(table) == sum(starts.values())
    seen = np.zeros((50, 50), np.int64)
    for _ in range(100):
        batch = table.sample(10_000)
        episode, t, real = batch.data["episode"], batch.data["t"], batch.mask["t"]
        assert (real[:, 0]).all()
        assert ((t == t[:, :1] + np.arange(3)) & (episode == episode[:, :1]) | ~real).all()
        assert (t <= episode).all()  # episode e has steps 0 .. e
        assert not t[~real].any()
        assert not episode[~real].any()
        if at_end == "skip":
            assert real.all()
        np.add.at(seen, (episode[:, 0], t[:, 0]), 1)
    assert ((seen > 0).sum(axis=1) == list(starts.values())).all()


@pytest.mark.long
def test_steps_of_sixteen_actors_are_never_one_trajectory(make_table: TableMaker, fork: Fork) -> None:
    """B6, stepjam/YARR#1 and the documentation of pytorch/rl: writers that interleave looked like one trajectory."""
    signature = {"actor": sr.ArraySpec((), "int64"), **SIGNATURE}
    table = make_table(
        10_000,
        signature=signature,
        item=sr.Sequence(8, at_start="skip", at_end="skip"),
        max_streams=16,
        max_sessions=20,
    )

    def act(pipe: Any, actor: int) -> None:
        rng = np.random.default_rng(actor)
        with table.writer() as writer:
            for episode in range(12):
                for t in range(int(rng.integers(8, 60))):
                    writer.append({"actor": actor, "episode": episode, "t": t})
                    os.sched_yield()
                writer.end_episode()

    def look() -> set[int]:
        data = table.sample(5000).data
        assert (data["actor"] == data["actor"][:, :1]).all()
        assert are_contiguous(data)
        return set(data["actor"][:, 0].tolist())

    actors = [fork(lambda pipe, i=i: act(pipe, i)) for i in range(16)]  # type: ignore[misc]
    for child in actors:
        look()
        child.result()
    assert set.union(*(look() for _ in range(200))) == set(range(16))
    assert check(table) == []


def test_no_pair_is_made_of_the_newest_and_the_oldest_step(make_table: TableMaker) -> None:
    """B7, huggingface/lerobot with `optimize_memory`: the next observation of the newest row was the oldest one's."""
    table = make_table(4, signature={"observation": sr.ArraySpec((), "int64")}, item=sr.Transition(), capacity_steps=5)

    def pairs() -> list[tuple[int, int]]:
        data = live(table).data
        return list(zip(data["observation"].tolist(), data["next_observation"].tolist(), strict=True))

    with table.writer() as writer:
        for k in range(8):
            writer.append({"observation": k})
        assert pairs() == [(3, 4), (4, 5), (5, 6), (6, 7)]  # five rows; row 7 has no next one yet
        writer.append({"observation": 8})
        assert pairs()[-1] == (7, 8)
        writer.end_episode({"observation": 9})
        assert pairs() == [(5, 6), (6, 7), (7, 8), (8, 9)]
        writer.append({"observation": 100})
        assert pairs()[-1] == (8, 9)


@pytest.mark.parametrize("chunk_steps", [1, 8])
def test_an_episode_longer_than_the_table_leaves_its_newest_steps(make_table: TableMaker, chunk_steps: int) -> None:
    """B8, hai-h-nguyen/pomdp-baselines#20: an episode longer than the buffer could not be added."""
    table = make_table(91, signature=SIGNATURE, item=sr.Sequence(10), capacity_steps=100, chunk_steps=chunk_steps)
    with table.writer() as writer:
        for t in range(1000):
            writer.append({"episode": 0, "t": t})
        batch = table.sample(2000)
        assert are_contiguous(batch.data)
        assert np.unique(batch.data["t"]).tolist() == list(range(900, 1000))
        assert batch.steps.tolist() == batch.data["t"][:, 0].tolist()  # none is taken for an episode's first step
        assert batch.steps.min() == 900
        assert batch.mask["t"].all()
    assert table.info().num_episodes == 1


def test_updates_of_evicted_episodes_of_another_process_are_counted_as_gone(make_table: TableMaker, fork: Fork) -> None:
    """B9, ray-project/ray#54284, #60065, #60773, #60775: priorities were set by position in a deque that had moved."""
    table = make_table(3, signature=SIGNATURE, item=sr.Episode(), item_steps=20, sampler=sr.selectors.Prioritized(1.0))

    def act(pipe: Any) -> None:
        with table.writer() as writer:
            for episode in range(10):
                for t in range(5 + episode):
                    writer.append({"episode": episode, "t": t})
                writer.end_episode()
                if episode == 2:
                    pipe.send()
                    pipe.recv()

    actor = fork(act)
    actor.receive()
    old = live(table)
    assert old.data["episode"][:, 0].tolist() == [0, 1, 2]
    actor.send()
    actor.result()
    with pytest.warns(UserWarning, match="update_priorities hit none of 3 items"):
        assert table.update_priorities(old.keys, [100.0, 100.0, 100.0]) == 0
    assert len(table.get(old.keys)) == table.delete(old.keys) == 0
    now = live(table)
    assert now.data["episode"][:, 0].tolist() == [7, 8, 9]
    assert now.priorities.tolist() == [1.0, 1.0, 1.0]
    assert now.lengths["t"].tolist() == [12, 13, 14]
    mixed = np.concatenate([old.keys[:2], now.keys[:1]])
    assert table.update_priorities(mixed, [7.0, 8.0, 9.0]) == 1
    assert live(table).priorities.tolist() == [9.0, 1.0, 1.0]


def private_bytes() -> int:
    """This process' memory that is not shared."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


@pytest.mark.long
def test_memory_stays_what_it_was_at_creation_whatever_the_lengths_of_episodes(
    make_table: TableMaker, rng: np.random.Generator
) -> None:
    """B10, ray-project/ray#24393: a FIFO of episodes never shrank."""
    table = make_table(20, signature=SIGNATURE, item=sr.Episode(), item_steps=1000, chunk_steps=16, max_streams=1)
    fds = os.listdir("/proc/self/fd")
    step = {"episode": 0, "t": 0}
    with table.writer() as writer:
        written, after_warm_up = 0, 0
        while written < 1_000_000:
            length = int(rng.integers(1, 1000))
            for _ in range(length):
                writer.append(step)
            writer.end_episode()
            written += length
            if after_warm_up == 0 and written > 100_000:
                after_warm_up = private_bytes()
    assert private_bytes() - after_warm_up < 2**20  # of ten times as many steps
    assert len(table) == 20
    assert table.info().evicted_for_room == 0
    assert table.info().bytes <= table.estimate().data_bytes
    assert len(os.listdir("/proc/self/fd")) == len(fds)
