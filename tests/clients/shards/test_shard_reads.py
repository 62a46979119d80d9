"""Batches of a table with shards: drawn from all of them by their totals, in no order of shards."""

from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.shards.sharded_table import ShardedTable
from tests.clients.shards.conftest import MakeShards, shards_of
from tests.statistics.chi_square import is_drawn_by
from tests.support.tables import client_of, columns_of, numbers, spans, steps

SIZES = (5, 60, 30)


def fill(table: ShardedTable, sizes: Any = SIZES, priorities: Any = None) -> None:
    """Inserts items 0, 1, 2, ..., this many into each shard."""
    begin = 0
    for shard, size in zip(shards_of(table), sizes, strict=True):
        if size > 0:
            some = None if priorities is None else priorities[begin : begin + size]
            shard.insert_batch(steps(np.arange(begin, begin + size)), some)
        begin += size


@pytest.mark.parametrize("count", [True, False])
def test_uniform_draws_are_uniform_over_shards_of_unequal_sizes(
    make_shards: MakeShards, seed: int, count: bool
) -> None:
    table = make_shards(300, seed=seed)
    fill(table)
    counts = np.zeros(95)
    for _ in range(100):
        batch = table.sample(256, count=count)
        counts += np.bincount(numbers(batch), minlength=95)
        np.testing.assert_allclose(batch.probabilities, 1 / 95)
        assert set(batch.table_size) == {95}
    assert is_drawn_by(counts, np.ones(95))
    assert table.info().samples == (25600 if count else 0)
    assert batch.weights(1.0, None) == pytest.approx(1.0)
    assert set(batch.keys >> 56) == {0, 1, 2}


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_prioritised_draws_follow_the_priorities_over_all_shards(
    make_shards: MakeShards, rng: np.random.Generator, seed: int, exponent: float
) -> None:
    table = make_shards(300, seed=seed, sampler=sr.selectors.Prioritized(exponent))
    priorities = rng.lognormal(0, 1.5, 95)
    priorities[::7] = 0
    fill(table, SIZES, priorities)
    expected = np.where(priorities > 0, priorities**exponent, 0)
    expected /= expected.sum()
    counts = np.zeros(95)
    for _ in range(100):
        batch = table.sample(256)
        drawn = numbers(batch)
        counts += np.bincount(drawn, minlength=95)
        np.testing.assert_allclose(batch.probabilities, expected[drawn], rtol=1e-9)
        np.testing.assert_array_equal(batch.priorities, priorities[drawn])
    assert is_drawn_by(counts, expected)
    smallest = expected[expected > 0].min()
    np.testing.assert_allclose(batch.weights(0.5, "table"), (expected[numbers(batch)] / smallest) ** -0.5)


def test_a_batch_is_in_no_order_of_shards(make_shards: MakeShards, seed: int) -> None:
    """Each place of the batch is drawn by itself, the first as every other one, whatever the one before it is."""
    table = make_shards(300, seed=seed)
    fill(table, (30, 30, 30))
    first, pairs = np.zeros(3), np.zeros(9)
    for _ in range(600):
        shards = table.sample(16).keys >> 56
        first[shards[0]] += 1
        pairs += np.bincount(3 * shards[:-1:2] + shards[1::2], minlength=9)
    assert is_drawn_by(first, np.ones(3))
    assert is_drawn_by(pairs, np.ones(9))


def test_priorities_that_are_all_zero_draw_all_items_alike(make_shards: MakeShards, seed: int) -> None:
    table = make_shards(300, seed=seed, sampler=sr.selectors.Prioritized(1.0))
    fill(table, SIZES, np.zeros(95))
    counts = sum(np.bincount(numbers(table.sample(256)), minlength=95) for _ in range(40))
    assert is_drawn_by(np.asarray(counts), np.ones(95))
    assert table.sample(8).weights(0.5, "table") == pytest.approx(1.0)
    keys = shards_of(table)[0].keys()
    assert table.update_priorities(keys[:1], [2.0]) == 1
    assert set(table.sample(50).keys) == {keys[0]}


def test_items_of_several_steps_come_padded_alike_from_every_shard(make_shards: MakeShards, seed: int) -> None:
    table = make_shards(60, seed=seed, item=sr.Sequence(4, at_end="pad"))
    for number, length in enumerate((2, 4, 9)):
        with shards_of(table)[number].writer() as writer:
            for i in range(length):
                data = columns_of(100 * number + i)
                writer.append({**steps(100 * number + i), "n": data["n"]})
            writer.end_episode()
    seen = set()
    for _ in range(20):
        batch = table.sample(32)
        assert batch.data["n"].shape == (32, 4)
        for span, key in zip(spans(batch), batch.keys, strict=True):
            assert np.diff(span).tolist() == [1] * (len(span) - 1)
            assert span[0] // 100 == key >> 56
            seen.add(tuple(span))
    assert {span[0] // 100 for span in seen} == {0, 1, 2}
    turned = table.sample(32, time_major=True)
    assert turned.data["n"].shape == (4, 32)
    assert turned.mask["n"].shape == (4, 32)


def test_out_columns_and_pad_to_are_as_of_other_tables(make_shards: MakeShards, seed: int) -> None:
    table = make_shards(300, seed=seed)
    fill(table)
    batch = table.sample(64, columns=["n", "x"])
    assert set(batch.data) == {"n", "x"}
    np.testing.assert_array_equal(batch.data["x"], columns_of(batch.data["n"])["x"])
    out = {"n": np.zeros(64, np.int64), "x": np.zeros((64, 5), np.float32)}
    again = table.sample(64, columns=["n", "x"], out=out)
    assert again.data["x"] is out["x"] or np.shares_memory(again.data["x"], out["x"])
    np.testing.assert_array_equal(out["x"], columns_of(out["n"])["x"])
    with pytest.raises(
        ValueError, match=r"table 's\d+': out, 'n' is int64 \[3\]; expected a writable C-contiguous array"
    ):
        table.sample(64, columns=["n"], out={"n": np.zeros(3, np.int64)})
    with pytest.raises(sr.SignatureMismatch, match="columns has 'nothing'"):
        table.sample(4, columns=["nothing"])
    with pytest.raises(ValueError, match="replacement=False, but it has 3 shards"):
        table.sample(4, replacement=False)
    with pytest.raises(ValueError, match="stratified=True, but it has 3 shards"):
        table.sample(4, stratified=True)
    with pytest.raises(ValueError, match="a view shows items of one arena"):
        table.view(1)
    with pytest.raises(ValueError, match="extend puts whole arrays in"):
        table.extend(steps(np.arange(3)))
    with pytest.raises(ValueError, match=f"mix: table '{table.name}' has shards"):
        sr.mix([(table, 3)])  # type: ignore[list-item]  # that is what is refused


def test_shards_with_items_of_different_structures_are_told_of(make_shards: MakeShards) -> None:
    table = make_shards(60)
    first, second, _ = shards_of(table)
    first.insert_batch(steps(np.arange(5)))
    with second.writer(history=3) as writer:
        for i in range(3):
            writer.append(steps(i))
        for _ in range(5):
            writer.create_item(length=2)
    with pytest.raises(sr.SignatureMismatch, match="items of different structures"):
        table.sample(256)


def test_get_finds_items_in_the_order_of_the_keys(make_shards: MakeShards, rng: np.random.Generator) -> None:
    table = make_shards(300)
    fill(table)
    keys = table.keys()
    assert len(keys) == len(set(keys.tolist())) == 95
    order = rng.permutation(95)
    wanted = np.concatenate([keys[order[:40]], [7, 5 << 56, -3], keys[order[40:]]])
    batch = table.get(wanted)
    assert numbers(batch).tolist() == order.tolist()
    assert batch.keys.tolist() == keys[order].tolist()
    np.testing.assert_allclose(batch.probabilities, 1 / 95)
    assert len(table.get(np.array([7]))) == 0
    assert table.get(keys[:3], columns="n").data["n"].tolist() == [0, 1, 2]


def test_a_seed_makes_draws_repeatable(make_shards: MakeShards) -> None:
    table = make_shards(300)
    fill(table)
    one, two = (client_of(table).table(table.name, seed=5) for _ in range(2))
    assert [one.sample(32).keys.tolist() for _ in range(3)] == [two.sample(32).keys.tolist() for _ in range(3)]


def test_a_sampler_goes_over_all_shards(make_shards: MakeShards, seed: int) -> None:
    table = make_shards(300)
    fill(table)
    for prefetch in (0, 2):
        with table.sampler(32, prefetch=prefetch, seed=seed, columns="n") as batches:
            found = np.concatenate([next(batches).keys for _ in range(20)])
        assert set(found >> 56) == {0, 1, 2}
    with pytest.raises(TypeError, match="expected options of sample"):
        table.sampler(32, nothing=1)


def test_threads_copy_the_rows_of_a_large_batch(make_shards: MakeShards) -> None:
    table = make_shards(30, signature={"n": np.int64(0), "x": sr.ArraySpec((4000,), "float32")})
    for number, shard in enumerate(shards_of(table)):
        ns = np.arange(10 * number, 10 * number + 10)
        shard.insert_batch({"n": ns, "x": np.repeat(ns[:, None], 4000, 1).astype(np.float32)})
    data = table.sample(300, num_threads=3).data
    assert set(data["n"].tolist()) == set(range(30))
    assert (data["x"] == data["n"][:, None]).all()
