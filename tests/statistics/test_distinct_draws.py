"""Draws without replacement and stratified draws: χ² of whole selections, and what holds for every single one."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import shmreplay as sr
from tests.statistics.chi_square import is_drawn_by
from tests.statistics.numbered import filled
from tests.support.tables import TableMaker
from tests.support.waiting import eventually

SAMPLERS = {
    "fifo": sr.selectors.Fifo(),
    "lifo": sr.selectors.Lifo(),
    "uniform": sr.selectors.Uniform(),
    "prioritised": sr.selectors.Prioritized(0.7),
    "lowest": sr.selectors.MinHeap(),
    "highest": sr.selectors.MaxHeap(),
}


def selections(weights: NDArray[np.float64], n: int) -> dict[tuple[int, ...], float]:
    """The probability of each ordered selection of n."""
    found: dict[tuple[int, ...], float] = {}
    for selection in itertools.permutations(np.flatnonzero(weights), n):
        left, probability = weights.sum(), 1.0
        for i in selection:
            probability *= weights[i] / left
            left -= weights[i]
        found[tuple(int(i) for i in selection)] = probability
    return found


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.one_quick
def test_selections_without_replacement_follow_the_weights_of_what_is_left(
    make_table: TableMaker, seed: int, exponent: float
) -> None:
    priorities = np.array([1.0, 0.0, 2.0, 7.0, 0.3])
    table = filled(make_table, 5, priorities, seed=seed, sampler=sr.selectors.Prioritized(exponent))
    expected = selections(np.where(priorities > 0, priorities**exponent, 0), 3)
    counts = dict.fromkeys(expected, 0)
    for _ in range(20_000):
        counts[tuple(table.sample(3, replacement=False).data["n"].tolist())] += 1
    assert is_drawn_by(np.array(list(counts.values())), np.array(list(expected.values())))


def test_which_items_a_large_batch_without_replacement_has_is_right_too(make_table: TableMaker, seed: int) -> None:
    """Uniform: each item in n/N of the batches, each pair in n(n-1)/N(N-1): over several holds of draws."""
    size, n, rounds = 60, 40, 3000
    table = filled(make_table, size, seed=seed)
    inside = np.zeros(size, np.int64)
    firsts = np.zeros(size, np.int64)
    lasts = np.zeros(size, np.int64)
    for _ in range(rounds):
        drawn = table.sample(n, replacement=False).data["n"]
        inside[drawn] += 1
        firsts[drawn[0]] += 1
        lasts[drawn[-1]] += 1
    assert inside.sum() == n * rounds
    assert is_drawn_by(firsts, np.ones(size))
    assert is_drawn_by(lasts, np.ones(size))


def test_probabilities_are_those_of_a_single_draw(make_table: TableMaker) -> None:
    priorities = np.array([1.0, 2.0, 3.0, 4.0])
    table = filled(make_table, 4, priorities, sampler=sr.selectors.Prioritized(1.0))
    batch = table.sample(4, replacement=False)
    np.testing.assert_allclose(batch.probabilities, priorities[batch.data["n"]] / 10, rtol=1e-12)
    np.testing.assert_allclose(batch.weights(1.0), 1 / priorities[batch.data["n"]], rtol=1e-12)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(sorted(SAMPLERS)))
def test_a_batch_without_replacement_is_what_a_plain_list_gives(
    make_table: TableMaker, data: st.DataObject, kind: str
) -> None:
    priorities = np.array(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=60)), float)
    table = filled(make_table, len(priorities), priorities, sampler=SAMPLERS[kind])
    there = np.arange(len(priorities))
    if kind == "prioritised" and priorities.any():
        there = np.flatnonzero(priorities)
    n = data.draw(st.integers(1, len(there)))
    drawn = table.sample(n, replacement=False, count=data.draw(st.booleans())).data["n"].tolist()
    in_order = {
        "fifo": there.tolist(),
        "lifo": there[::-1].tolist(),
        "lowest": np.argsort(priorities, kind="stable").tolist(),
        "highest": np.argsort(-priorities, kind="stable").tolist(),
    }
    if kind in in_order:
        assert drawn == in_order[kind][:n]
    assert len(set(drawn)) == n
    assert set(drawn) <= set(there.tolist())


@pytest.mark.parametrize("kind", SAMPLERS)
def test_more_than_there_are_is_an_error_that_says_both_numbers(make_table: TableMaker, kind: str) -> None:
    table = filled(make_table, 5, [0, 1, 0, 2, 3], max_size=50, sampler=SAMPLERS[kind])
    there, what = (3, "items of positive priority") if kind == "prioritised" else (5, "items")
    for n in (there + 1, 1000):
        with pytest.raises(ValueError, match=f"n is {n} with replacement=False, but the table has {there} {what}; exp"):
            table.sample(n, replacement=False)
    assert table.info().samples == 0
    assert len(table.sample(there, replacement=False)) == there
    assert len(table.sample(there + 1, at_least=1, replacement=False)) == there


def test_of_priorities_that_are_all_zero_any_item_comes(make_table: TableMaker) -> None:
    table = filled(make_table, 5, np.zeros(5), sampler=sr.selectors.Prioritized(1.0))
    assert sorted(table.sample(5, replacement=False).data["n"].tolist()) == [0, 1, 2, 3, 4]
    table.update_priorities(table.keys()[2:4], [1, 2])
    with pytest.raises(
        ValueError, match="n is 3 with replacement=False, but the table has 2 items of positive priority"
    ):
        table.sample(3, replacement=False)
    table.update_priorities(table.keys()[2:4], [0, 0])
    assert len(table.sample(5, replacement=False)) == 5


def test_a_batch_that_runs_out_of_items_carries_those_it_had(make_table: TableMaker) -> None:
    """The rate limiter admits four of seven; meanwhile the others lose their priority."""
    limiter = sr.rate_limiters.RateLimiter(1.0, 1, 3.0, 1e6)
    table = filled(make_table, 7, np.ones(7), sampler=sr.selectors.Prioritized(1.0), rate_limiter=limiter)
    other = make_table.client.table(table.name)

    def take_the_rest() -> None:
        eventually(lambda: other.info().blocked_samples == 1)
        left = other.get(other.keys())
        other.update_priorities(left.keys[left.times_sampled == 0], np.zeros(3))
        other.set_rate_limiter(sr.rate_limiters.MinSize(1))

    thief = threading.Thread(target=take_the_rest)
    thief.start()
    text = r"4 of the 7 items asked for were drawn, see the error's \.batch, and none is left"
    with pytest.raises(ValueError, match=text) as raised:
        table.sample(7, replacement=False, timeout_s=100)
    thief.join()
    batch = raised.value.batch  # type: ignore[attr-defined]
    assert len(set(batch.keys.tolist())) == 4


# --- stratified -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [None, 1.0])
def test_each_stratum_gives_one_item(make_table: TableMaker, rng: np.random.Generator, exponent: float | None) -> None:
    size, n = 40, 16
    priorities = np.ones(size) if exponent is None else rng.integers(0, 9, size).astype(float)
    sampler = sr.selectors.Uniform() if exponent is None else sr.selectors.Prioritized(exponent)
    table = filled(make_table, size, priorities, sampler=sampler)
    shares = np.concatenate([[0.0], np.cumsum(priorities) / priorities.sum()])
    for _ in range(200):
        drawn = table.sample(n, stratified=True).data["n"]
        lowest, highest = np.arange(n) / n, (np.arange(n) + 1) / n
        assert np.all(shares[drawn] < highest + 1e-12)
        assert np.all(shares[drawn + 1] > lowest - 1e-12)


def test_stratified_draws_follow_the_priorities(make_table: TableMaker, rng: np.random.Generator, seed: int) -> None:
    """One draw of each batch is a draw from its own stratum alone; all together they are as the priorities say."""
    priorities = rng.lognormal(0, 1, 50)
    table = filled(make_table, 50, priorities, seed=seed, sampler=sr.selectors.Prioritized(1.0))
    total = np.zeros(50)
    for _ in range(4000):
        total += np.bincount(table.sample(8, stratified=True).data["n"], minlength=50)
    expected = 8 * 4000 * priorities / priorities.sum()
    # Spread more evenly than independent draws: no count is further off than those may be.
    assert np.all(np.abs(total - expected) < 6 * np.sqrt(expected))


def test_draws_that_the_sampler_does_not_make_are_refused(make_table: TableMaker) -> None:
    for kind, sampler in SAMPLERS.items():
        table = filled(make_table, 3, [1, 2, 3], sampler=sampler)
        if kind in ("uniform", "prioritised"):
            assert len(table.sample(3, stratified=True)) == 3
        else:
            with pytest.raises(
                ValueError, match=r"stratified=True, but its sampler is .*; expected a random one, Unif"
            ):
                table.sample(3, stratified=True)
        with pytest.raises(ValueError, match="stratified=True and replacement=False exclude each other"):
            table.sample(3, stratified=True, replacement=False)
