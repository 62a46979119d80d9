"""Another priority exponent for a table in use, and what `info` says of its selectors."""

import threading
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.statistics.chi_square import is_drawn_by
from tests.support.tables import TableMaker

SIGNATURE = {"n": sr.ArraySpec((), "int64")}


def test_draws_and_probabilities_follow_the_exponent_now(make_table: TableMaker, seed: int) -> None:
    priorities = np.array([0.0, 1.0, 4.0, 9.0, 16.0])
    table = make_table(10, signature=SIGNATURE, sampler=sr.selectors.Prioritized(1.0), seed=seed)
    table.insert_batch({"n": np.arange(5)}, priorities)
    for exponent in (0.5, 0.0, 2.0):
        table.set_priority_exponent(exponent)
        weights = np.where(priorities > 0, priorities**exponent, 0)
        batch = table.sample(20_000)
        np.testing.assert_allclose(batch.probabilities, (weights / weights.sum())[batch.data["n"]], rtol=1e-12)
        assert is_drawn_by(np.bincount(batch.data["n"], minlength=5), weights)
        smallest = weights[weights > 0].min() / weights.sum()
        np.testing.assert_allclose(batch.weights(1.0, "table"), smallest / batch.probabilities, rtol=1e-12)
        assert table.info().sampler == sr.selectors.Prioritized(exponent)
    assert table.spec.sampler == sr.selectors.Prioritized(1.0)
    key = table.insert({"n": 5}, priority=3.0)
    table.update_priorities(np.array([key]), [5.0])
    np.testing.assert_allclose(table.get(np.array([key])).probabilities, 25 / (weights.sum() + 25), rtol=1e-12)


def test_all_users_of_the_table_see_it(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE, sampler=sr.selectors.Prioritized(1.0))
    other = make_table.client.table(table.name)
    table.set_priority_exponent(0.25)
    assert other.info().sampler == sr.selectors.Prioritized(0.25)


@pytest.mark.parametrize(
    ("exponent", "error", "text"),
    [
        (-0.5, ValueError, "exponent is -0.5; expected a finite number >= 0"),
        (float("nan"), ValueError, "exponent is nan; expected a number"),
        (float("inf"), ValueError, "exponent is inf; expected a finite number >= 0"),
        ("0.5", TypeError, "exponent is '0.5'; expected a number"),
        (None, TypeError, "exponent is None; expected a number"),
    ],
)
def test_an_exponent_that_is_none_is_refused(
    make_table: TableMaker, exponent: Any, error: type[Exception], text: str
) -> None:
    table = make_table(10, signature=SIGNATURE, sampler=sr.selectors.Prioritized(0.75))
    with pytest.raises(error, match=text):
        table.set_priority_exponent(exponent)
    assert table.info().sampler == sr.selectors.Prioritized(0.75)


@pytest.mark.parametrize("sampler", [sr.selectors.Uniform(), sr.selectors.Fifo(), sr.selectors.MaxHeap()])
def test_samplers_without_one_refuse_it(make_table: TableMaker, sampler: Any) -> None:
    table = make_table(10, signature=SIGNATURE, sampler=sampler, remover=sr.selectors.Prioritized(1.0))
    with pytest.raises(ValueError, match="only a Prioritized sampler has a priority exponent"):
        table.set_priority_exponent(0.5)
    assert table.info().remover == sr.selectors.Prioritized(1.0)


def test_learners_and_actors_go_on_meanwhile(make_table: TableMaker) -> None:
    size = 20_000
    table = make_table(size, signature=SIGNATURE, sampler=sr.selectors.Prioritized(1.0))
    table.insert_batch({"n": np.arange(size)}, np.linspace(1, 100, size))
    done = threading.Event()

    def change() -> None:
        handle = make_table.client.table(table.name)
        exponents = np.random.default_rng(1)
        while not done.is_set():
            handle.set_priority_exponent(float(exponents.random()))

    changer = threading.Thread(target=change)
    changer.start()
    for i in range(200):
        batch = table.sample(64)
        assert np.all((batch.probabilities > 0) & (batch.probabilities < 0.01))
        table.update_priorities(batch.keys, np.linspace(1, 100, 64))
        table.insert({"n": i})
    done.set()
    changer.join()
    live = table.get(table.keys())
    exponent = table.info().sampler.exponent
    np.testing.assert_allclose(
        live.probabilities, live.priorities**exponent / (live.priorities**exponent).sum(), rtol=1e-9
    )


def test_info_tells_what_the_table_was_created_with(make_table: TableMaker) -> None:
    table = make_table(
        30,
        signature=SIGNATURE,
        sampler=sr.selectors.MinHeap(),
        remover=sr.selectors.Lifo(),
        max_times_sampled=3,
        capacity_steps=500,
    )
    info = table.info()
    assert (info.sampler, info.remover, info.max_times_sampled) == (sr.selectors.MinHeap(), sr.selectors.Lifo(), 3)
    assert info.max_size == 30
    assert info.capacity_steps >= 500
