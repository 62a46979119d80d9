"""Sampling and what changes items: counts, order, seeds, weights against closed forms, looks, priorities, deletes."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker, numbers, step, steps, values

PRIORITIZED = sr.selectors.Prioritized(1.0)


def filled(make_table: TableMaker, count: int, **options: Any) -> TableHandle:
    """A table with the steps 0, 1, ..., of priorities 1, 2, ...."""
    table = make_table(max(count, 1), **options)
    table.insert_batch(steps(range(count)), np.arange(1, count + 1))
    return table


# --- how many --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "error", "text"),
    [
        (0, ValueError, "n is 0; expected 1 to 2147483647"),
        (-1, ValueError, "n is -1; expected 1 to 2147483647"),
        (2**40, ValueError, "n is 1099511627776; expected 1 to 2147483647"),
        (1.5, TypeError, "n is 1.5; expected an integer"),
        (True, TypeError, "n is True; expected an integer"),
    ],
)
def test_a_batch_size_that_is_none_is_refused(
    make_table: TableMaker, n: Any, error: type[Exception], text: str
) -> None:
    table = filled(make_table, 3)
    for call in (table.sample, table.can_sample, table.can_insert):
        with pytest.raises(error, match=f"table {table.name!r}: {text}"):
            call(n)
    assert table.info().samples == 0


def test_at_least_is_one_to_n(make_table: TableMaker) -> None:
    table = filled(make_table, 3)
    for at_least in (0, 5, -1):
        with pytest.raises(ValueError, match=f"at_least is {at_least}; expected 1 to 4"):
            table.sample(4, at_least=at_least)
    with pytest.raises(TypeError, match="at_least is '2'; expected an integer"):
        table.sample(4, at_least="2")  # type: ignore[arg-type]
    assert table.info().samples == 0


def test_a_timeout_that_is_none_is_refused(make_table: TableMaker) -> None:
    table = filled(make_table, 3)
    with pytest.raises(ValueError, match="timeout_s is -1; expected seconds >= 0, or None to wait for ever"):
        table.sample(1, timeout_s=-1)
    with pytest.raises(ValueError, match="timeout_s is nan; expected seconds >= 0"):
        table.insert(step(0), timeout_s=float("nan"))
    with pytest.raises(TypeError, match="timeout_s is 'soon'; expected seconds >= 0"):
        table.insert_batch(steps([0]), timeout_s="soon")  # type: ignore[arg-type]
    assert (table.info().inserts, table.info().samples) == (3, 0)
    assert len(table.sample(1, timeout_s=float("inf"))) == 1


def test_a_batch_may_be_larger_than_the_table_where_items_stay(make_table: TableMaker) -> None:
    table = filled(make_table, 10)
    batch = table.sample(64)
    assert set(numbers(batch)) <= set(range(10))
    for n in (1, 7, 64, 1000, 2, 4097):
        assert numbers(table.sample(n)).shape == (n,)
    assert table.info().samples == 64 + 1 + 7 + 64 + 1000 + 2 + 4097


def test_at_least_takes_what_is_admitted_and_no_less(make_table: TableMaker) -> None:
    table = make_table(10, rate_limiter=sr.rate_limiters.RateLimiter(1.0, 1, 0.0, 100.0))
    table.insert_batch(steps(range(5)))
    assert len(table.sample(8, at_least=2, timeout_s=0)) == 5
    table.insert(step(5))
    with pytest.raises(sr.RateLimitTimeout, match=r"after 1 of 8 items, which are in the error's \.batch") as raised:
        table.sample(8, at_least=2, timeout_s=0)
    assert len(raised.value.batch) == 1
    with pytest.raises(sr.RateLimitTimeout) as raised:
        table.sample(8, at_least=2, timeout_s=0)
    assert raised.value.batch is None
    table.insert_batch(steps(range(6, 26)))
    assert len(table.sample(8, at_least=2, timeout_s=0)) == 8


# --- which, and what a batch says of them ----------------------------------------------------------------------------


def test_a_batch_says_what_its_items_are(make_table: TableMaker) -> None:
    table = filled(make_table, 4, sampler=PRIORITIZED)
    table.insert_batch(steps([4, 5]), [10, 20])  # 0 and 1 went
    batch = table.sample(50)
    drawn = numbers(batch)
    priorities = np.array([np.nan, np.nan, 3, 4, 10, 20])
    assert batch.priorities.tolist() == priorities[drawn].tolist()
    np.testing.assert_allclose(batch.probabilities, priorities[drawn] / 37, rtol=1e-12)
    assert batch.table_size.tolist() == [4] * 50
    assert batch.ages.tolist() == (5 - drawn).tolist()
    assert batch.steps.tolist() == [0] * 50
    times = [drawn[: i + 1].tolist().count(n) for i, n in enumerate(drawn)]
    assert batch.times_sampled.tolist() == times
    assert len(set(zip(batch.episodes.tolist(), drawn.tolist(), strict=True))) == len(set(drawn.tolist()))
    for values_of in (batch.keys, batch.times_sampled, batch.table_size, batch.episodes, batch.steps, batch.ages):
        assert values_of.dtype == np.int64
    assert batch.priorities.dtype == batch.probabilities.dtype == np.float64


def test_selectors_without_chance_have_probability_one(make_table: TableMaker) -> None:
    for sampler, n in (
        (sr.selectors.Fifo(), 0),
        (sr.selectors.Lifo(), 4),
        (sr.selectors.MinHeap(), 0),
        (sr.selectors.MaxHeap(), 4),
    ):
        batch = filled(make_table, 5, sampler=sampler).sample(20)
        assert numbers(batch).tolist() == [n] * 20
        assert batch.probabilities.tolist() == [1.0] * 20


def test_the_same_seed_draws_the_same_items(make_table: TableMaker, seed: int) -> None:
    tables = [filled(make_table, 100, sampler=PRIORITIZED) for _ in range(2)]
    draws = {
        name: [numbers(make_table.client.table(table.name, seed=given).sample(200)).tolist() for table in tables]
        for name, given in (("seeded", seed), ("sequence", np.random.SeedSequence(seed)), ("unseeded", None))
    }
    assert draws["seeded"][0] == draws["seeded"][1] == draws["sequence"][0]
    assert draws["unseeded"][0] != draws["unseeded"][1] != draws["seeded"][0]


def test_a_group_of_draws_is_the_draws_one_by_one(make_table: TableMaker, seed: int) -> None:
    """The batch of a seed is made of single samples of the same seed, whatever groups the core draws in."""
    for sampler in (sr.selectors.Uniform(), sr.selectors.Prioritized(0.6)):
        tables = [filled(make_table, 77, seed=seed, sampler=sampler) for _ in range(2)]
        together = numbers(tables[0].sample(203))
        assert [int(numbers(tables[1].sample(1))[0]) for _ in range(203)] == together.tolist()


def test_items_of_priority_zero_come_only_when_all_are_zero(make_table: TableMaker) -> None:
    table = filled(make_table, 6, sampler=PRIORITIZED)
    keys = table.keys()
    table.update_priorities(keys, [0, 0, 2, 0, 3, 0])
    assert set(numbers(table.sample(500)).tolist()) == {2, 4}
    table.update_priorities(keys, np.zeros(6))
    batch = table.sample(500)
    assert set(numbers(batch).tolist()) == set(range(6))
    assert batch.probabilities.tolist() == [1 / 6] * 500
    assert batch.weights(1.0).tolist() == batch.weights(1.0, "table").tolist() == [1.0] * 500
    table.update_priorities(keys[1:2], [1e-280])
    assert set(numbers(table.sample(500)).tolist()) == {1}


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_follow_the_closed_form(make_table: TableMaker, beta: float) -> None:
    exponent, priorities = 0.6, np.array([1.0, 2.0, 4.0, 8.0])
    table = make_table(4, sampler=sr.selectors.Prioritized(exponent))
    table.insert_batch(steps(range(4)), priorities)
    batch = table.sample(30)
    drawn = numbers(batch)
    probabilities = priorities**exponent / np.sum(priorities**exponent)
    expected = (4 * probabilities) ** -beta
    np.testing.assert_allclose(batch.weights(beta, normalise=None), expected[drawn], rtol=1e-12)
    np.testing.assert_allclose(batch.weights(beta), expected[drawn] / expected[drawn].max(), rtol=1e-12)
    np.testing.assert_allclose(batch.weights(beta, "table"), expected[drawn] / expected.max(), rtol=1e-12)
    assert batch.weights(beta, "table").max() <= 1 + 1e-12
    if beta == 0:
        assert batch.weights(beta).tolist() == [1.0] * 30


def test_the_tables_largest_weight_is_that_of_its_smallest_positive_priority(make_table: TableMaker) -> None:
    table = make_table(4, sampler=PRIORITIZED)
    table.insert_batch(steps(range(4)), [0.0, 1e-6, 1.0, 5.0])
    batch = table.sample(8)
    np.testing.assert_allclose(batch.weights(1.0, "table"), 1e-6 / batch.priorities, rtol=1e-9)


@pytest.mark.parametrize("normalise", ["batch", "table", None])
def test_no_weight_is_nan_however_far_the_priorities_are_apart(make_table: TableMaker, normalise: Any) -> None:
    table = make_table(4, sampler=PRIORITIZED)
    keys = table.insert_batch(steps(range(4)), [1e280, 1e280, 1e-280, 1e-20])
    for batch in (table.sample(8), table.get(keys)):
        for beta in (0.0, 0.5, 1.0, 30.0):
            assert not np.isnan(batch.weights(beta, normalise)).any()


def test_weights_of_uniform_draws_are_one(make_table: TableMaker) -> None:
    for sampler in (sr.selectors.Uniform(), sr.selectors.Prioritized(0.0)):
        batch = filled(make_table, 5, sampler=sampler).sample(20)
        for found in (batch.weights(0.7, "batch"), batch.weights(0.7, "table"), batch.weights(0.7, None)):
            np.testing.assert_allclose(found, np.ones(20), rtol=1e-12)


# --- looks -----------------------------------------------------------------------------------------------------------


def test_a_look_needs_no_permission_and_moves_nothing(make_table: TableMaker) -> None:
    table = make_table.queue(5)
    table.insert_batch(steps(range(3)))
    table.pause()
    before = table.info()
    batch = table.sample(7, count=False, timeout_s=0)
    assert numbers(batch).tolist() == [0] * 7
    assert batch.times_sampled.tolist() == [0] * 7
    after = table.info()
    assert (after.samples, after.size, after.num_unique_samples) == (before.samples, 3, 0)
    assert after.last_sample_s_ago is None
    table.resume()
    assert numbers(table.sample(3)).tolist() == [0, 1, 2]


def test_a_look_at_an_empty_table_times_out_and_says_that_it_is_empty(make_table: TableMaker) -> None:
    table = make_table(rate_limiter=sr.rate_limiters.MinSize(10))
    with pytest.raises(sr.RateLimitTimeout) as raised:
        table.sample(2, count=False, timeout_s=0)
    assert "sample(count=False) not admitted within 0 s: the table is empty; waiting for an insert" in str(raised.value)
    table.insert(step(3))  # far from the ten that a counted sample needs
    assert numbers(table.sample(2, count=False, timeout_s=0)).tolist() == [3, 3]


# --- get, update, delete ---------------------------------------------------------------------------------------------


def test_get_gives_the_live_ones_in_the_order_asked_for(make_table: TableMaker) -> None:
    table = filled(make_table, 300, chunk_steps=7)
    keys = table.keys()
    table.delete(keys[[3, 200]])
    wanted = [299, 3, 0, 0, 5, 200, 17, *range(250, 40, -1)]
    batch = table.get(keys[wanted])
    assert numbers(batch).tolist() == [n for n in wanted if n not in (3, 200)]
    assert batch.keys.tolist() == [keys[n] for n in wanted if n not in (3, 200)]
    assert table.info().samples == 0
    empty = table.get(keys[[3, 200]])
    assert len(empty) == len(table.get([])) == 0
    assert numbers(empty).tolist() == []


def test_keys_of_another_dtype_are_a_type_error(make_table: TableMaker) -> None:
    table = filled(make_table, 4, sampler=PRIORITIZED)
    keys = table.keys()
    for bad, dtype in (
        (keys.astype(np.int32), "int32"),
        (keys.astype(float), "float64"),
        (keys.astype(np.uint64), "uint64"),
    ):
        text = f"keys have dtype {dtype}; expected int64, as batch.keys and insert give them"
        with pytest.raises(TypeError, match=text):
            table.update_priorities(bad, np.ones(4))
        with pytest.raises(TypeError, match=text):
            table.delete(bad)
        with pytest.raises(TypeError, match=text):
            table.get(bad)
    assert table.update_priorities([int(key) for key in keys], np.ones(4)) == 4
    assert table.delete(int(keys[0])) == 1


@pytest.mark.parametrize(
    "given",
    [
        [1, 2, 3, 4],
        (1.0, 2.0, 3.0, 4.0),
        np.array([[1], [2], [3], [4]], np.float32),
        np.array([1, 2, 3, 4], np.float16),
        np.array([1, 2, 3, 4], np.uint8),
        np.array([1, 2, 3, 4], ml_dtypes.bfloat16),
        np.array([1, 0, 2, 0, 3, 0, 4, 0], np.float64)[::2],
        np.array([1, 2, 3, 4], ">f8"),
    ],
)
def test_priorities_of_any_real_dtype_and_layout_are_the_same(make_table: TableMaker, given: Any) -> None:
    table = filled(make_table, 4, sampler=PRIORITIZED)
    table.update_priorities(table.keys(), np.full(4, 9.0))
    if isinstance(given, np.ndarray):
        given.flags.writeable = False
    assert table.update_priorities(table.keys(), given) == 4
    assert table.get(table.keys()).priorities.tolist() == [1, 2, 3, 4]


def test_priorities_that_are_none_change_nothing(make_table: TableMaker) -> None:
    table = filled(make_table, 4, sampler=PRIORITIZED)
    keys = table.keys()
    for bad, text in (
        ([9, float("nan"), 9, 9], r"priorities\[1\] is nan; priorities must be finite, >= 0 and at most 1e\+280"),
        ([9, 9, float("inf"), 9], r"priorities\[2\] is inf; priorities must be finite"),
        ([9, 9, 9, -1e-9], r"priorities\[3\] is -1e-09; priorities must be finite"),
        ([-float("inf"), 9, 9, 9], r"priorities\[0\] is -inf; priorities must be finite"),
        ([9, 9, 9], r"priorities have shape \(3,\), which is 3 for 4 keys; expected one a key, \[4\] or \[4, 1\]"),
        (np.ones((4, 2)), r"priorities have shape \(4, 2\), which is 8 for 4 keys"),
    ):
        with pytest.raises(ValueError, match=text):
            table.update_priorities(keys, bad)
    no_numbers: list[tuple[Any, str]] = [
        (np.ones(4, complex), "complex128"),
        (["a"] * 4, "<U1"),
        ([None] * 4, "object"),
    ]
    for none, dtype in no_numbers:
        with pytest.raises(TypeError, match=f"priorities have dtype {dtype}; expected real numbers"):
            table.update_priorities(keys, none)
    assert table.get(keys).priorities.tolist() == [1, 2, 3, 4]
    assert table.info().sum_priority == 10


def test_updates_in_any_order_leave_the_last_value(make_table: TableMaker, rng: np.random.Generator) -> None:
    """Two batches are out at once, and their updates come back shuffled and with keys twice."""
    table = filled(make_table, 50, sampler=PRIORITIZED)
    expected = dict(zip(table.keys().tolist(), np.arange(1.0, 51.0), strict=True))
    for _ in range(20):
        batches = [table.sample(40) for _ in range(2)]
        for batch in rng.permutation(2):
            order = rng.permutation(40)
            keys, priorities = batches[batch].keys[order], rng.random(40)
            assert table.update_priorities(keys, priorities) == 40
            expected.update(zip(keys.tolist(), priorities.tolist(), strict=True))
    assert dict(zip(table.keys().tolist(), table.get(table.keys()).priorities.tolist(), strict=True)) == expected
    assert table.info().sum_priority == pytest.approx(sum(expected.values()))


def test_an_update_that_hits_nothing_warns_once(make_table: TableMaker) -> None:
    table = make_table(8, sampler=PRIORITIZED)
    keys = table.insert_batch(steps(range(8)))
    table.insert_batch(steps(range(8, 15)))
    assert table.update_priorities(keys, np.full(8, 7.0)) == 1  # one is left: no reason to warn
    table.insert(step(15), 1.0)
    with pytest.warns(UserWarning, match="update_priorities hit none of 8 items; they are gone by now"):
        assert table.update_priorities(keys, np.full(8, 7.0)) == 0
    assert table.update_priorities(keys, np.full(8, 7.0)) == 0
    assert table.update_priorities([], []) == 0
    assert table.info().max_priority == 1


def test_delete_takes_the_live_ones_and_reset_all(make_table: TableMaker) -> None:
    table = filled(make_table, 10, sampler=PRIORITIZED, chunk_steps=3)
    keys = table.keys()
    assert table.delete(keys[[2, 2, 5]]) == 2
    assert table.delete(keys[[2, 5, 9]]) == 1
    assert values(table) == [0, 1, 3, 4, 6, 7, 8]
    assert (table.info().deletes, table.info().inserts, len(table)) == (3, 10, 7)
    table.sample(5)
    table.reset()
    info = table.info()
    assert (info.inserts, info.samples, info.deletes, info.size, info.num_episodes) == (0, 0, 0, 0, 0)
    assert (info.max_priority, info.min_priority, info.sum_priority) == (0, 0, 0)
    table.insert(step(11))
    assert values(table) == [11]
