"""The demo's display: what is shown of returns and counters, as lines where there is no terminal."""

import dataclasses
import io

import pytest
from rich.console import Console

from shmreplay.clients.demo import progress
from shmreplay.clients.demo.progress import NUM_EPISODES, Progress, Rates
from shmreplay.clients.tables.info import TableInfo


def table_info(**counters: int) -> TableInfo:
    """Of a table with the demo's limiter, otherwise empty."""
    zeros = {part.name: 0 for part in dataclasses.fields(TableInfo)}
    info = {**zeros, "name": "replay", "samples_per_insert": 8.0, "min_size_to_sample": 1000, "max_size": 50_000}
    return TableInfo(**{**info, **counters})  # type: ignore[arg-type]


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def shown(output: io.StringIO) -> Progress:
    return Progress("title", Console(file=output, soft_wrap=True), 195.0)


def test_the_goal_is_reached_by_the_mean_of_twenty_episodes(shown: Progress) -> None:
    shown.add([500.0] * (NUM_EPISODES - 1))
    assert not shown.has_reached_goal, "nineteen episodes are not enough"
    shown.add([500.0])
    assert shown.has_reached_goal
    shown.add([195.0] * NUM_EPISODES)
    assert (shown.mean_return, shown.has_reached_goal) == (195.0, True)
    shown.add([194.0])
    assert not shown.has_reached_goal
    assert len(shown.all_returns) == 2 * NUM_EPISODES + 1


def test_a_line_has_every_figure(shown: Progress, output: io.StringIO) -> None:
    shown.add([10.0, 20.0])
    shown.show(table_info(inserts=3000, samples=15_980, size=2990))
    line = output.getvalue()
    assert "mean return 15.0" in line
    assert "samples per insert 7.99 (asked for 8)" in line
    assert "table size 2,990 of 50,000" in line
    assert line.count("\n") == 1


def test_a_line_says_what_is_waited_for_before_anything_is_learnt(
    shown: Progress, output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    for counters in ({}, {"inserts": 3, "size": 3}, {"inserts": 1001, "size": 1001, "samples": 64}):
        shown.show(table_info(**counters))
    shown.show(table_info(), is_last=True)
    starting, filling, learning, last = (line.partition(" s  ")[2] for line in output.getvalue().splitlines())
    assert starting == "waiting for the actors, which are starting"
    assert filling.startswith("mean return 0.0  inserts/s ")
    assert filling.endswith("  table size 3 of 50,000  waiting for 1,000 items, which the learner begins with")
    assert "waiting" not in learning
    assert last.startswith("mean return 0.0  inserts/s 0  ")
    assert "waiting" not in last


def test_a_panel_says_it_too() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100)
    with Progress("title", console, 195.0) as shown:
        shown.show(table_info())
    assert "the actors, which are starting" in output.getvalue()
    output.truncate(0)
    with Progress("title", console, 195.0) as shown:
        shown.show(table_info(inserts=1001, samples=64))
    assert "waiting for" not in output.getvalue()


def test_lines_come_one_at_a_time_but_the_last_one_always_does(
    shown: Progress, output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 3600.0)
    for _ in range(5):
        shown.show(table_info())
    assert output.getvalue().count("\n") == 1
    shown.show(table_info(), is_last=True)
    assert output.getvalue().count("\n") == 2


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = Rates()
    rates.add(0.0, table_info())
    assert (rates.inserts, rates.samples) == (0.0, 0.0)
    rates.add(1.0, table_info(inserts=100, samples=800))
    assert (rates.inserts, rates.samples) == (100.0, 800.0)
    rates.add(2.0, table_info(inserts=100, samples=800))
    rates.add(3.0, table_info(inserts=100, samples=900))
    assert (rates.inserts, rates.samples) == (0.0, 50.0)
