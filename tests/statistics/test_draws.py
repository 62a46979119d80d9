"""Draws follow their probabilities: χ² of uniform and prioritised sampling at many sizes, and of removals."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.statistics.chi_square import LIMIT, deviation, is_drawn_by
from tests.statistics.numbered import SIGNATURE, filled
from tests.support.children import Child, Work
from tests.support.tables import TableMaker

DRAWS = {1: 2_000, 3: 30_000, 4096: 200_000, 231_071: 3_000_000}
SIZES = [1, 3, 4096, pytest.param(231_071, marks=pytest.mark.long)]


def draw(table: TableHandle, count: int, batch_size: int = 4096) -> NDArray[np.int64]:
    """How often each value was drawn, in batches of about that size."""
    counts = np.zeros(table.spec.max_size, np.int64)
    while count > 0:
        batch = table.sample(min(count, batch_size))
        counts += np.bincount(batch.data["n"], minlength=len(counts))
        count -= len(batch)
    return counts


def some_priorities(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Of a few orders of magnitude, a quarter of them zero unless it is only one."""
    priorities = rng.lognormal(0, 1.5, size)
    if size > 1:
        priorities[rng.permutation(size)[: max(1, size // 4)]] = 0
    return priorities


def weights(priorities: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    return np.where(priorities > 0, priorities**exponent, 0.0)


def test_the_test_itself_sees_what_is_wrong(rng: np.random.Generator) -> None:
    fair = np.full(1000, 1 / 1000)
    assert is_drawn_by(rng.multinomial(100_000, fair), fair)
    skewed = fair * np.linspace(0.8, 1.2, 1000)
    assert deviation(rng.multinomial(100_000, skewed / skewed.sum()), fair) > LIMIT
    assert deviation(np.full(1000, 100), fair) < -LIMIT
    missing = fair.copy()
    missing[:10] = 0
    assert deviation(rng.multinomial(100_000, missing / missing.sum()), fair) > LIMIT


@pytest.mark.parametrize("size", SIZES)
def test_uniform_draws_are_uniform(make_table: TableMaker, seed: int, size: int) -> None:
    counts = draw(filled(make_table, size, seed=seed), DRAWS[size])
    assert is_drawn_by(counts, np.ones(size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_prioritised_draws_follow_the_priorities(
    make_table: TableMaker, rng: np.random.Generator, seed: int, size: int, exponent: float
) -> None:
    priorities = some_priorities(size, rng)
    table = filled(make_table, size, priorities, seed=seed, sampler=sr.selectors.Prioritized(exponent))
    counts = draw(table, DRAWS[size] // 3)
    assert is_drawn_by(counts, weights(priorities, exponent))
    batch = table.sample(100)
    expected = weights(priorities, exponent) / weights(priorities, exponent).sum()
    np.testing.assert_allclose(batch.probabilities, expected[batch.data["n"]], rtol=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_all_zero_is_uniform(make_table: TableMaker, seed: int, size: int) -> None:
    table = filled(make_table, size, np.zeros(size), seed=seed, sampler=sr.selectors.Prioritized(0.6))
    assert is_drawn_by(draw(table, DRAWS[size] // 3), np.ones(size))


def test_draws_follow_priorities_that_were_updated_and_items_that_came_and_went(
    make_table: TableMaker, rng: np.random.Generator, seed: int
) -> None:
    """A table half of whose items were deleted, others replaced, all updated many times."""
    size = 3000
    table = filled(make_table, size, rng.random(size), seed=seed, sampler=sr.selectors.Prioritized(0.8))
    for _ in range(20):
        table.delete(rng.choice(table.keys(), 400))
        table.insert_batch({"n": np.arange(300)}, rng.random(300))
        keys = rng.choice(table.keys(), 2000)
        table.update_priorities(keys, rng.lognormal(0, 3, 2000))
    live = table.get(table.keys())
    priorities = np.zeros(len(live))
    priorities[:] = live.priorities
    places = {int(key): i for i, key in enumerate(live.keys)}
    counts = np.zeros(len(live), np.int64)
    for _ in range(30):
        for key in table.sample(4096).keys:
            counts[places[int(key)]] += 1
    assert is_drawn_by(counts, weights(priorities, 0.8))


@pytest.mark.long
def test_updates_do_not_drift(make_table: TableMaker, rng: np.random.Generator, seed: int) -> None:
    """Two million updates over twelve orders of magnitude; then only ten items have a priority, and only they come."""
    size = 2**14
    table = filled(make_table, size, np.ones(size), seed=seed, sampler=sr.selectors.Prioritized(1.0))
    keys = table.keys()
    for _ in range(120):
        order = rng.permutation(keys)
        table.update_priorities(order, 10 ** rng.uniform(-6, 6, size))
    chosen = rng.permutation(size)[:10]
    last = np.zeros(size)
    last[chosen] = rng.lognormal(0, 1, 10)
    table.update_priorities(keys, last)
    assert is_drawn_by(draw(table, 100_000), last)
    batch = table.sample(64)
    np.testing.assert_allclose(batch.probabilities, last[batch.data["n"]] / last.sum(), rtol=1e-12)


def test_a_huge_ratio_of_priorities_hides_the_rest_only_while_it_is_there(make_table: TableMaker, seed: int) -> None:
    """One item of 1e30 among a thousand of 1: it alone comes; when it is gone the others come evenly."""
    priorities = np.ones(1000)
    priorities[500] = 1e30
    table = filled(make_table, 1000, priorities, seed=seed, sampler=sr.selectors.Prioritized(1.0))
    assert draw(table, 50_000)[500] == 50_000
    table.delete(table.keys()[500:501])
    without = np.ones(1000)
    without[500] = 0
    assert is_drawn_by(draw(table, 100_000), without)


def test_a_random_remover_takes_each_item_alike(make_table: TableMaker) -> None:
    """After one insert too many of each of many fills: which of the 33 items went."""
    table = make_table(32, signature=SIGNATURE, remover=sr.selectors.Uniform())
    gone = np.zeros(33, np.int64)
    for _ in range(3000):
        table.reset()
        table.insert_batch({"n": np.arange(33)})
        [missing] = set(range(33)) - set(table.get(table.keys()).data["n"].tolist())
        gone[missing] += 1
    assert is_drawn_by(gone, np.ones(33))


def test_a_prioritised_remover_takes_items_by_their_priorities(make_table: TableMaker) -> None:
    table = make_table(15, signature=SIGNATURE, remover=sr.selectors.Prioritized(2.0))
    priorities = np.arange(16.0)
    gone = np.zeros(16, np.int64)
    for _ in range(3000):
        table.reset()
        table.insert_batch({"n": np.arange(16)}, priorities)
        [missing] = set(range(16)) - set(table.get(table.keys()).data["n"].tolist())
        gone[missing] += 1
    assert is_drawn_by(gone, priorities**2)


def test_eight_handles_at_once_draw_right_and_unlike_each_other(
    make_table: TableMaker, rng: np.random.Generator
) -> None:
    """While two more threads insert into another table of the same server and update what they do not draw."""
    size, exponent = 5000, 0.6
    priorities = some_priorities(size, rng)
    table = filled(make_table, size, priorities, sampler=sr.selectors.Prioritized(exponent))
    other = make_table(100, signature=SIGNATURE)
    done = threading.Event()
    counts: list[NDArray[np.int64]] = []
    firsts: list[list[int]] = []

    def sample() -> None:
        handle = make_table.client.table(table.name)
        firsts.append(handle.sample(50).data["n"].tolist())
        counts.append(draw(handle, 60_000, 256))

    def disturb() -> None:
        keys = table.keys()
        while not done.is_set():
            other.insert_batch({"n": np.arange(50)})
            table.update_priorities(keys, priorities)

    samplers = [threading.Thread(target=sample) for _ in range(8)]
    disturbers = [threading.Thread(target=disturb) for _ in range(2)]
    for thread in samplers + disturbers:
        thread.start()
    for thread in samplers:
        thread.join()
    done.set()
    for thread in disturbers:
        thread.join()
    assert len(counts) == 8
    for own in counts:
        assert is_drawn_by(own, weights(priorities, exponent))
    assert is_drawn_by(np.sum(counts, axis=0), weights(priorities, exponent))
    assert len({tuple(first) for first in firsts}) == 8


@pytest.mark.long
def test_priorities_that_many_processes_give_and_update_are_those_of_one(
    make_table: TableMaker, fork: Callable[[Work], Child], rng: np.random.Generator
) -> None:
    """Six actors insert with first priorities of their own; two learners sample and set each to what it ought to be."""
    size = 3000
    right = some_priorities(size, rng)
    table = make_table(
        size, signature=SIGNATURE, sampler=sr.selectors.Prioritized(0.7), max_streams=16, max_sessions=16
    )

    def act(pipe: Any, first: int) -> None:
        own = np.random.default_rng(first)
        for n in range(first, size, 6 * 10):
            table.insert_batch({"n": np.arange(n, n + 10)}, own.random(10))

    def learn(pipe: Any) -> None:
        while not pipe.poll():
            batch = table.sample(64)
            table.update_priorities(batch.keys, right[batch.data["n"]])
        batch = table.get(table.keys())
        table.update_priorities(batch.keys, right[batch.data["n"]])

    actors = [fork(lambda pipe, i=i: act(pipe, 10 * i)) for i in range(6)]  # type: ignore[misc]
    learners = [fork(learn) for _ in range(2)]
    for child in actors:
        child.result()
    for child in learners:
        child.send()
        child.result()
    batch = table.get(table.keys())
    assert np.sort(batch.data["n"]).tolist() == list(range(size))
    assert batch.priorities.tolist() == right[batch.data["n"]].tolist()
    assert is_drawn_by(draw(table, 100_000), weights(right, 0.7))


def test_successive_draws_are_independent(make_table: TableMaker, seed: int) -> None:
    """Pairs of neighbours in a batch, which the core draws side by side, are as frequent as their product says."""
    table = filled(make_table, 8, np.arange(1, 9), seed=seed, sampler=sr.selectors.Prioritized(1.0))
    pairs = np.zeros(64, np.int64)
    for _ in range(40):
        drawn = table.sample(4096).data["n"]
        pairs += np.bincount(drawn[:-1:2] * 8 + drawn[1::2], minlength=64)
    assert is_drawn_by(pairs, np.outer(np.arange(1, 9), np.arange(1, 9)).reshape(-1))
