"""Histograms at the terminal: bins of every kind of value, bars that fit."""

import math

import numpy as np
import pytest

from shmreplay.clients.cli.commands.histogram import bars, summarise


def test_every_value_is_counted_once(rng: np.random.Generator) -> None:
    for num_bins in (1, 2, 7, 20, 200):
        for is_log in (False, True):
            for is_whole in (False, True):
                values = np.floor(rng.exponential(50, 300)) if is_whole else rng.exponential(50, 300)
                found = summarise(values, np.ones(300), num_bins, is_log, is_whole)
                assert sum(found["counts"]) == 300
                assert 1 <= len(found["counts"]) <= num_bins
                assert len(found["edges"]) == len(found["counts"]) + 1
                assert found["edges"] == sorted(found["edges"])


@pytest.mark.parametrize("value", [0.0, 3.0, 1e-300, 1e280])
@pytest.mark.parametrize("is_log", [False, True])
def test_values_that_are_all_the_same_have_a_bin(value: float, is_log: bool) -> None:
    found = summarise(np.full(5, value), np.ones(5), 4, is_log, False)
    assert sum(found["counts"]) == 5
    assert (found["min"], found["max"], found["median"]) == (value, value, value)
    assert all(math.isfinite(edge) for edge in found["edges"])


def test_whole_numbers_have_a_bin_each_where_these_suffice() -> None:
    found = summarise(np.array([0.0, 1, 1, 3]), np.ones(4), 20, False, True)
    assert found["edges"] == [0, 1, 2, 3, 4]
    assert found["counts"] == [1, 2, 0, 1]


def test_items_that_stand_for_several_count_for_these() -> None:
    found = summarise(np.array([0.0, 10.0]), np.array([1.0, 3.0]), 2, False, False)
    assert (found["items"], found["looked_at"], found["counts"]) == (4, 2, [1, 3])
    assert (found["mean"], found["median"]) == (7.5, 10.0)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_bars_fit_and_are_as_long_as_they_count(width: int) -> None:
    lines = bars([0.0, 1, 2, 3, 4], [0, 1, 50, 100], width, True)
    assert max(map(len, lines)) <= max(width, 19)
    assert [line.count("█") for line in lines] == sorted(line.count("█") for line in lines)
    assert lines[0].rstrip().endswith("0")
    assert lines[1][-1] in "▏▎▍▌▋▊▉█"


def test_terminals_without_the_characters_get_plain_ones() -> None:
    assert all(line.isascii() for line in bars([0.0, 1, 2], [1, 100], 60, False))


@pytest.mark.parametrize("is_log", [False, True])
def test_figures_are_those_of_the_values_and_not_of_the_bars(is_log: bool) -> None:
    found = summarise(np.repeat([0.0, 4.0], 50), np.ones(100), 20, is_log, False)
    assert (found["min"], found["max"], found["mean"], found["median"]) == (0, 4, 2, 0)
    assert (found["counts"][0], found["counts"][-1]) == (50, 50)


@pytest.mark.parametrize("num_bins", [1, 2, 20])
def test_zeros_have_the_first_of_the_logarithmic_bins_for_themselves(num_bins: int) -> None:
    found = summarise(np.array([*[0.0] * 99, 1.0]), np.ones(100), num_bins, True, True)
    assert found["edges"][0] == 0
    assert found["counts"] == ([99, 1] if num_bins > 1 else [100])


def test_values_next_to_each_other_have_fewer_bins() -> None:
    for is_log in (False, True):
        found = summarise(np.array([1.0, np.nextafter(1, 2)]), np.ones(2), 200, is_log, False)
        assert sum(found["counts"]) == 2
        assert (np.diff(found["edges"]) > 0).all()
