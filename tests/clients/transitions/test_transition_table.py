"""TransitionTable: rows that were saved are put into the table that is opened, or stay saved."""

import pickle

import numpy as np
import pytest
from gymnasium import spaces

import shmreplay as sr
from shmreplay.clients.transitions.layout import Layout
from shmreplay.clients.transitions.saved_rows import SavedRows
from shmreplay.clients.transitions.transition_table import TransitionTable
from shmreplay.clients.transitions.transitions_spec import transitions_spec
from tests.support.interrupts import Interrupt

NOBODY, EVERYBODY = np.zeros(1, np.bool_), np.ones(1, np.bool_)


def private_table(max_size: int = 20) -> TransitionTable:
    layout = Layout(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
    spec = transitions_spec(
        "replay",
        layout,
        max_size,
        n_steps=1,
        at_start="zeros",
        num_streams=1,
        steps_per_episode=8,
        sampler=sr.selectors.Uniform(),
        rate_limiter=None,
    )
    return TransitionTable(spec, layout, 1, None, 10)


def add(table: TransitionTable, num: int) -> None:
    for i in range(num):
        observation, following = np.full((1, 2), i / 100), np.full((1, 2), (i + 1) / 100)
        table.add_transitions(observation, following, [1], [float(i)], EVERYBODY if i == num - 1 else NOBODY, NOBODY)


def test_an_opening_that_is_interrupted_loses_no_saved_row(monkeypatch: pytest.MonkeyPatch) -> None:
    first = private_table()
    add(first, 8)
    saved = pickle.dumps(first)
    first.close()
    second: TransitionTable = pickle.loads(saved)

    def interrupted(self: SavedRows, table: object) -> None:
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(SavedRows, "put_into", interrupted)
        with pytest.raises(Interrupt):
            second.draw(1)
    assert second._server is None
    third: TransitionTable = pickle.loads(pickle.dumps(second))
    for table in (second, third):
        rewards = table.handle.get(table.handle.keys()).data["reward"]
        assert sorted(rewards.tolist()) == list(range(8))
        table.close()


def test_a_close_ends_though_the_rate_limiter_admits_nothing(
    server: sr.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last add left open has to be an item, for which there is no room in a queue that nobody empties."""
    monkeypatch.setattr("shmreplay.clients.transitions.transition_table.CLOSE_TIMEOUT_S", 0.1)
    layout = Layout(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
    spec = transitions_spec(
        "full",
        layout,
        20,
        n_steps=1,
        at_start="zeros",
        num_streams=None,
        steps_per_episode=8,
        sampler=sr.selectors.Uniform(),
        rate_limiter=sr.rate_limiters.RateLimiter(1.0, 1, -1.0, 2.0),
    )
    table = TransitionTable(spec, layout, 1, server.address, 10)
    for i in range(3):
        table.add_transitions(np.full((1, 2), i / 100), np.full((1, 2), (i + 1) / 100), [1], [0.0], NOBODY, NOBODY)
    with pytest.raises(sr.RateLimitTimeout):
        table.close()
    table.close()
    with server.client() as client:
        client.drop_tables(["full"])
