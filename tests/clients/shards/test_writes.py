"""What goes into a table with shards, and what keys reach: routing, spreading, forks, deaths."""

from multiprocessing.connection import Connection

import numpy as np
import pytest

import shmreplay as sr
from tests.clients.shards.conftest import MakeShards, shards_of
from tests.support.children import Fork
from tests.support.tables import client_of, numbers, step, steps
from tests.support.waiting import eventually


def test_handles_and_writers_spread_evenly(make_shards: MakeShards) -> None:
    table = make_shards(300)
    handles = [client_of(table).table(table.name) for _ in range(6)]
    keys = [handle.insert(step(n)) for n, handle in enumerate(handles)]
    assert sorted(key >> 56 for key in keys) == [0, 0, 1, 1, 2, 2]
    assert [handle.insert(step(9)) >> 56 for handle in handles] == [key >> 56 for key in keys]
    table = make_shards(300)
    writers = [table.writer(history=1) for _ in range(6)]
    for writer in writers:
        writer.append(step(1))
    assert sorted(writer.create_item(length=1) >> 56 for writer in writers) == [0, 0, 1, 1, 2, 2]
    with table.vector_writer(5, history=1) as vector:
        vector.append(steps(np.arange(5)))
        assert len(set(vector.create_items(length=1).reshape(-1) >> 56)) == 1
    for writer in writers:
        writer.close()


def test_a_random_course_of_changes_is_that_of_a_table_without_shards(
    make_shards: MakeShards, rng: np.random.Generator
) -> None:
    """A model: what each key stands for, and how each shard drops its oldest."""
    table = make_shards(60, 4, sampler=sr.selectors.Prioritized(1.0))
    shards, model = shards_of(table), [dict[int, tuple[int, float]]() for _ in range(4)]
    dead, n = [np.int64(3 << 56 | 5)], 0
    for _ in range(200):
        everything = {key: value for part in model for key, value in part.items()}
        act = rng.integers(5)
        if act <= 1:
            number, count = int(rng.integers(4)), int(rng.integers(1, 9))
            priorities = rng.integers(1, 9, count).astype(float)
            keys = shards[number].insert_batch(steps(np.arange(n, n + count)), priorities)
            assert set(keys >> 56) == {number}
            items = zip(range(n, n + count), priorities.tolist(), strict=True)
            model[number].update(zip(keys.tolist(), items, strict=True))
            while len(model[number]) > 15:
                oldest = next(iter(model[number]))
                dead.append(np.int64(oldest))
                del model[number][oldest]
            n += count
        elif everything and act == 2:
            keys = rng.choice(np.array([*everything, *dead[-3:]]), 12)
            priorities = rng.integers(0, 9, 12).astype(float)
            alive = [key for key in keys.tolist() if key in everything]
            assert table.update_priorities(keys, priorities) == len(alive)
            for key, priority in zip(keys.tolist(), priorities.tolist(), strict=True):
                if key in everything:
                    model[key >> 56][key] = (model[key >> 56][key][0], priority)
        elif everything and act == 3:
            keys = np.unique(rng.choice(np.array([*everything, *dead[-3:]]), 3))
            assert table.delete(keys) == sum(key in everything for key in keys.tolist())
            for key in keys.tolist():
                if model[key >> 56].pop(key, None) is not None:
                    dead.append(np.int64(key))
        everything = {key: value for part in model for key, value in part.items()}
        assert len(table) == table.info().size == len(everything)
        assert table.keys().tolist() == list(everything)
        if everything:
            batch = table.get(table.keys())
            assert numbers(batch).tolist() == [value[0] for value in everything.values()]
            assert batch.priorities.tolist() == [value[1] for value in everything.values()]
            assert table.info().sum_priority == pytest.approx(sum(value[1] for value in everything.values()))
    table.reset()
    assert len(table) == 0
    assert table.info().inserts == 0


def test_bad_priorities_change_nothing_in_any_shard(make_shards: MakeShards) -> None:
    table = make_shards(30, sampler=sr.selectors.Prioritized(1.0))
    keys = np.concatenate([shard.insert_batch(steps(np.arange(2))) for shard in shards_of(table)])
    with pytest.raises(ValueError, match=r"priorities\[5\] is nan"):
        table.update_priorities(keys, [5, 5, 5, 5, 5, np.nan])
    assert table.info().max_priority == 1
    with pytest.raises(ValueError, match="expected one a key"):
        table.update_priorities(keys, [1.0])
    with pytest.raises(TypeError, match="expected int64"):
        table.update_priorities(keys.astype(np.int32), np.ones(6))
    with pytest.warns(UserWarning, match=rf"^table '{table.name}': update_priorities hit none of 2 items") as caught:
        assert table.update_priorities(np.array([9 << 56, -1]), [1.0, 1.0]) == 0
    assert caught[0].filename == __file__


def test_data_changes_in_the_shard_of_its_key(make_shards: MakeShards) -> None:
    signature = {"n": np.int64(0), "h": sr.ArraySpec((2,), "float32", mutable=True)}
    table = make_shards(30, signature=signature)
    rows = {"n": np.arange(4), "h": np.zeros((4, 2), np.float32)}
    keys = np.concatenate([shard.insert_batch(rows) for shard in shards_of(table)])[::-1].copy()
    new = np.arange(24, dtype=np.float32).reshape(12, 1, 2)
    assert table.update_data(keys, {"h": new}) == 12
    np.testing.assert_array_equal(table.get(keys).data["h"], new[:, 0])


def test_the_table_as_a_whole_adds_up(make_shards: MakeShards) -> None:
    table = make_shards(30, sampler=sr.selectors.Prioritized(1.0), rate_limiter=sr.rate_limiters.MinSize(6))
    for number, shard in enumerate(shards_of(table)):
        shard.insert_batch(steps(np.arange(number + 2)), np.arange(number + 2) * 1.0)
    info = table.info()
    assert (info.name, info.size, info.max_size, info.inserts, info.min_size_to_sample) == (table.name, 9, 30, 9, 6)
    assert (info.min_priority, info.max_priority, info.sum_priority) == (1, 3, 10)
    assert [each.size for each in table.shard_infos()] == [2, 3, 4]
    listed = client_of(table).tables()[table.name]
    assert (listed["size"], listed["spec"], len(listed["arena"])) == (9, table.spec, 3)
    assert table.can_sample(100)
    assert table.can_insert(5)
    assert table.estimate().total_bytes == sum(shard.estimate().total_bytes for shard in shards_of(table))
    table.set_rate_limiter(sr.rate_limiters.SampleToInsertRatio(2, 9, 30))
    assert table.info().max_diff - table.info().min_diff == pytest.approx(60)
    with pytest.raises(ValueError, match="expected at least 2 each"):
        table.set_rate_limiter(sr.rate_limiters.SampleToInsertRatio(1, 9, 2))
    client_of(table).set_rate_limiter(table.name, sr.rate_limiters.MinSize(3))
    assert [each.min_size_to_sample for each in table.shard_infos()] == [1, 1, 1]
    table.set_priority_exponent(0.0)
    assert table.info().sampler == sr.selectors.Prioritized(0.0)
    client_of(table).reset(table.name)
    assert len(table) == 0


def test_forked_children_insert_into_shards_of_their_own(make_shards: MakeShards, fork: Fork) -> None:
    table = make_shards(3000, max_sessions=64)
    table.insert(step(0))

    def work(pipe: Connection) -> None:
        for i in range(50):
            table.insert(step(i))
        pipe.send(len(table.sample(8)))
        pipe.recv()

    children = [fork(work) for _ in range(9)]
    assert [child.receive() for child in children] == [8] * 9
    sizes = [each.size for each in table.shard_infos()]
    assert sum(sizes) == 451
    assert min(sizes) >= 50
    assert np.unique(numbers(table.sample(64))).size > 10
    for child in children:
        child.send()
        child.result()


def test_a_writer_that_dies_in_one_shard_holds_up_nobody(make_shards: MakeShards, fork: Fork) -> None:
    table = make_shards(3000, max_sessions=64)

    def work(pipe: Connection) -> None:
        own = client_of(table).table(table.name)
        pipe.send(own.insert(step(0)) >> 56)
        n = 0
        while not pipe.poll():
            own.insert(step(n))
            n += 1

    children = [fork(work) for _ in range(6)]
    assert sorted(child.receive() for child in children) == [0, 0, 1, 1, 2, 2]
    for child in children[:3]:
        child.kill()
    before = table.info().inserts
    eventually(lambda: table.info().inserts > before + 1000)
    assert len(table.sample(256)) == 256
    for child in children[3:]:
        child.send()
        child.result()
    eventually(lambda: all(len(shard._arena.sessions()) <= 4 for shard in shards_of(table)))


def test_learners_that_die_in_a_batch_of_all_shards_hold_nobody_up(make_shards: MakeShards, fork: Fork) -> None:
    table = make_shards(300, sampler=sr.selectors.Prioritized(1.0), max_sessions=64)
    for shard in shards_of(table):
        shard.insert_batch(steps(np.arange(100)))

    def learn(pipe: Connection) -> None:
        pipe.send("begun")
        while True:
            batch = table.sample(128)
            table.update_priorities(batch.keys, np.arange(1.0, 129.0))

    for _ in range(6):
        learners = [fork(learn) for _ in range(2)]
        for learner in learners:
            learner.receive()
        batch = table.sample(256)
        assert table.update_priorities(batch.keys, np.ones(256)) == 256
        for learner in learners:
            learner.kill()
    for shard in shards_of(table):
        shard.insert_batch(steps(np.arange(100)))
    assert len(table) == 300
    eventually(lambda: all(len(shard._arena.sessions()) == 1 for shard in shards_of(table)))
