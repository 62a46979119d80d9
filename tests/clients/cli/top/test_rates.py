"""Rates between two looks of shmreplay top."""

import pytest

from shmreplay.clients.cli.top.rates import NUM_READINGS, Rates, median
from tests.support import fake_stats as fake


def look(inserts: int = 700, samples: int = 2800, pid: int = 1234, mine: int = 0) -> dict[str, object]:
    info = fake.info("t", inserts=inserts, samples=samples)
    return fake.stats({"t": fake.arena(info, sessions=[fake.session(7, inserts=mine, writes=["t"])])}, pid=pid)


def test_a_rate_is_what_came_since_the_last_look_by_the_second() -> None:
    rates = Rates()
    first = rates.take(look(), 10.0)
    assert (first.tables[0].inserts_per_s, first.clients[0].inserts_per_s) == (None, None)
    second = rates.take(look(900, 3000, mine=50), 12.0)
    assert (second.tables[0].inserts_per_s, second.tables[0].samples_per_s) == (100.0, 100.0)
    assert (second.clients[0].inserts_per_s, second.clients[0].updates_per_s) == (25.0, 0.0)


def test_there_is_none_after_a_reset_or_of_another_daemon() -> None:
    rates = Rates()
    rates.take(look(), 10.0)
    after = rates.take(look(5, 2900), 11.0).tables[0]
    assert (after.inserts_per_s, after.samples_per_s) == (None, 100.0)
    assert rates.take(look(6, 2900, pid=99), 12.0).tables[0].samples_per_s is None


def test_rates_of_the_last_readings_are_kept() -> None:
    rates = Rates()
    for second in range(NUM_READINGS + 3):
        row = rates.take(look(700 + second * second), float(second)).tables[0]
    assert len(row.inserts_history) == NUM_READINGS
    assert row.inserts_history[-3:] == (119.0, 121.0, 123.0)
    rates.take(fake.stats({}), 100.0)
    assert rates.take(look(), 101.0).tables[0].inserts_history == (None,)  # dropped, and made anew


def test_ages_stay_until_they_are_looked_at_again() -> None:
    rates = Rates()
    aged = fake.stats({"t": fake.arena(fake.info("t", ages={"edges": [10.0, 100.0], "counts": [5, 5, 0], "sum": 1.0}))})
    assert rates.take(aged, 1.0).tables[0].age_p50 == 10.0
    assert rates.take(look(), 2.0).tables[0].age_p50 == 10.0


def test_what_a_table_keeps_and_has_reached() -> None:
    rates = Rates()
    row = rates.take(look(), 1.0).tables[0]
    assert (row.ratio, row.target, row.fill, row.bounds) == (4.0, 4.0, 0.5, (-160.0, 240.0))
    free = fake.info("t", inserts=0, min_diff=-fake.NO_BOUND, max_diff=fake.NO_BOUND)
    row = rates.take(fake.stats({"t": fake.arena(free)}), 2.0).tables[0]
    assert (row.ratio, row.target) == (None, None)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([0, 0, 0], None), ([4, 0, 0], 5.0), ([1, 3, 0], 10.0 + 90.0 / 3), ([0, 4, 0], 55.0), ([0, 0, 4], 100.0)],
    ids=str,
)
def test_the_median_of_a_histogram(counts: list[int], expected: float | None) -> None:
    assert median({"edges": [10.0, 100.0], "counts": counts, "sum": 0.0}) == expected
