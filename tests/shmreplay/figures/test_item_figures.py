"""Histograms of a table's items."""

import numpy as np
import pytest

from shmreplay.figures.item_figures import PRIORITY_EDGES, TIMES_SAMPLED_EDGES, age_edges, histogram


def test_a_value_is_counted_at_the_first_edge_that_is_not_below_it() -> None:
    found = histogram(np.array([0, 1, 1, 2, 3, 99]), [0, 1, 2, 5], 6)
    assert found == {"edges": [0, 1, 2, 5], "counts": [1, 2, 1, 1, 1], "sum": 106.0, "of": 6}


def test_counts_of_a_part_are_scaled_up_and_still_add_up_to_the_whole() -> None:
    found = histogram(np.array([1, 2, 3]), [1, 2], 1000)
    assert sum(found["counts"]) == 1000
    assert found["counts"] == [333, 334, 333]
    assert found["sum"] == pytest.approx(2000)
    assert found["of"] == 3


def test_a_histogram_of_nothing_counts_nothing() -> None:
    assert histogram(np.array([], np.int64), [1], 0) == {"edges": [1], "counts": [0, 0], "sum": 0.0, "of": 0}


@pytest.mark.parametrize("max_size", [1, 7, 1_000, 10_000_000])
def test_ages_have_edges_beyond_ten_times_the_size_of_the_table(max_size: int) -> None:
    edges = age_edges(max_size)
    assert edges == sorted(set(edges))
    assert edges[:4] == [0, 1, 2, 5]
    assert 10 * max_size <= edges[-1] <= 100 * max_size


def test_edges_are_in_order_and_numbers_that_can_be_read() -> None:
    for edges in (TIMES_SAMPLED_EDGES, PRIORITY_EDGES):
        assert list(edges) == sorted(set(edges))
        assert all(len(f"{edge:g}") <= 6 for edge in edges)
