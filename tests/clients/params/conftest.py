"""Weights of a learner for its actors: versions of a tree whose every byte follows from the version's number."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients import params
from shmreplay.clients.params import Params, Snapshot
from tests.support.tables import check

SHAPES = {"weight": (300, 70), "bias": (70,), "scale": ()}
_names = (f"policy{i}" for i in itertools.count())


def tree(number: int) -> dict[str, Any]:
    """The weights that are published as that version."""
    layers = [{name: np.full(shape, number * 10 + i, np.float32) for name, shape in SHAPES.items()} for i in range(2)]
    return {"layers": layers, "steps": np.array(number, np.int64)}


def number_of(data: Any) -> int:
    """The number that a tree was made of, after a look at every byte."""
    number = int(data["steps"])
    expected = tree(number)
    assert len(data["layers"]) == 2
    for layer, wanted in zip(data["layers"], expected["layers"], strict=True):
        assert layer.keys() == wanted.keys()
        for name in SHAPES:
            assert layer[name].dtype == np.float32
            np.testing.assert_array_equal(layer[name], wanted[name])
    return number


def seen(snapshot: Snapshot) -> int:
    """The number of a snapshot's version, which the tree shows too; gives it back."""
    with snapshot:
        assert number_of(snapshot.data) == snapshot.version
        return snapshot.version


def publish_until_full(policy: Params, keep: Callable[[], object]) -> str:
    """Publishes versions, each of which `keep` then keeps, until there is no memory for another; the error's text."""
    try:
        while True:
            policy.publish(tree(policy.version + 1), timeout_s=0.05)
            keep()
    except sr.RateLimitTimeout as error:
        return str(error)


class PolicyMaker:
    """Makes tables of versions on a server, and checks each one's arena when the test is over."""

    def __init__(self, client: sr.Client) -> None:
        self.client = client
        self._made: list[Params] = []

    def __call__(self, like: Any = None, **options: Any) -> Params:
        name = next(_names)
        options = {"max_sessions": 16, **options}
        self.client.create_tables([params.table(name, tree(0) if like is None else like, **options)])
        self._made.append(Params(self.client.table(name), like=like))
        return self._made[-1]

    def finish(self) -> None:
        """Drops the tables that are still there. Fails for one whose arena is not healthy."""
        there = self.client.tables()
        for made in self._made:
            name = made._table.name
            if name in there:
                assert check(made._table) == []
                self.client.drop_table(name)


@pytest.fixture
def make_policy(server: sr.Server) -> Iterator[PolicyMaker]:
    """Makes tables of versions; they are checked and dropped when the test is over."""
    with server.client() as client:
        maker = PolicyMaker(client)
        yield maker
        maker.finish()
