"""Priorities whose power by the exponent no weight can hold: each way in refuses them, so draws are exact."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker

SIGNATURE = {"n": sr.ArraySpec((), "int64"), "p": sr.ArraySpec((), "float64")}
REFUSED = r"priorities must be finite, >= 0 and at most 1e\+280; with a Prioritized .* from 1e-290 to 1e\+290"
# Exponent and priority.
BEYOND = [(3.0, 1e100), (2.0, 1e-170), (2.0, 1e146), (1.0, 1e-300), (50.0, 1e6)]


def arrays(priority: float, count: int = 2) -> dict[str, Any]:
    return {"n": np.arange(count), "p": np.full(count, priority)}


def step(priority: float) -> dict[str, Any]:
    return {"n": 0, "p": priority}


def append(table: TableHandle, priority: float | None, value: float = 1.0) -> None:
    with table.writer() as writer:
        writer.append(step(value), priority=priority)


def create_item(table: TableHandle, priority: float) -> None:
    with table.writer(patterns=[]) as writer:
        writer.append(step(1.0))
        writer.create_item(priority, trajectory={"n": writer.history["n"][-1:]})


def create_items(table: TableHandle, priority: float) -> None:
    with table.vector_writer(2, patterns=[]) as writer:
        writer.append(arrays(1.0))
        writer.create_items(trajectory={"n": writer.history["n"][-1:]}, priorities=[1.0, priority])


def update(table: TableHandle, priority: float) -> None:
    table.update_priorities(table.keys()[:1], [priority])


WAYS: dict[str, tuple[dict[str, Any], Callable[[TableHandle, float], Any]]] = {
    "insert": ({}, lambda table, priority: table.insert(step(1.0), priority)),
    "insert_batch": ({}, lambda table, priority: table.insert_batch(arrays(1.0), [1.0, priority])),
    "update_priorities": ({}, update),
    "mix": ({}, lambda table, priority: sr.mix([(table, 1)]).update_priorities(table.keys()[:1], [priority], [0])),
    "append": ({"item": sr.Sequence(1)}, append),
    "append by a column": (
        {"item": sr.Sequence(1, priority="p")},
        lambda table, priority: append(table, None, priority),
    ),
    "append by td_priority": (
        {"item": sr.Sequence(1, priority=sr.td_priority("p"))},
        lambda table, priority: append(table, None, priority),
    ),
    "extend": (
        {"item": sr.Sequence(1, priority="p")},
        lambda table, priority: table.extend(arrays(priority)),
    ),
    "create_item": ({}, create_item),
    "create_items": ({}, create_items),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("exponent", "priority"), BEYOND)
def test_a_priority_beyond_the_range_of_weights_is_refused(
    make_table: TableMaker, way: str, exponent: float, priority: float
) -> None:
    options, call = WAYS[way]
    table = make_table(signature=SIGNATURE, sampler=sr.selectors.Prioritized(exponent), **options)
    if not options and way not in ("create_item", "create_items"):
        table.insert(step(1.0), 1.0)
    before = table.keys().tolist()
    with pytest.raises(ValueError, match="priorit") as caught:
        call(table, priority)
    assert table.keys().tolist() == before
    if "append by" not in way:
        assert caught.match(REFUSED)


def test_a_remover_has_a_range_too(make_table: TableMaker) -> None:
    table = make_table(signature=SIGNATURE, remover=sr.selectors.Prioritized(3.0))
    with pytest.raises(ValueError, match=REFUSED):
        table.insert(step(1.0), 1e100)
    table.insert(step(1.0), 0.0)


def test_shards_refuse_it_as_one_table(make_table: TableMaker) -> None:
    declared = sr.Table("sharded", SIGNATURE, 100, shards=2, sampler=sr.selectors.Prioritized(3.0), max_streams=8)
    make_table.client.create_tables([declared])
    table = make_table.client.table("sharded")
    keys = table.insert_batch(arrays(1.0, 4))
    with pytest.raises(ValueError, match=r"priorities\[3\] is 1e\+100"):
        table.update_priorities(keys, [1.0, 1.0, 1.0, 1e100])
    make_table.client.drop_table("sharded")


@pytest.mark.parametrize(("exponent", "low", "high"), [(3.0, 1e95, 1e96), (2.0, 1e-140, 2e-140), (0.6, 1e-250, 1e-249)])
def test_within_the_range_draws_have_the_probabilities_of_the_powers(
    make_table: TableMaker, exponent: float, low: float, high: float
) -> None:
    table = make_table(signature=SIGNATURE, sampler=sr.selectors.Prioritized(exponent))
    keys = table.insert_batch(arrays(1.0), [low, high])
    drawn = table.sample(64)
    wanted = {
        key: 1 / (1 + ratio**exponent) for key, ratio in zip(keys.tolist(), (high / low, low / high), strict=True)
    }
    for key, probability in zip(drawn.keys.tolist(), drawn.probabilities.tolist(), strict=True):
        assert probability == pytest.approx(wanted[key], rel=1e-9)


def test_an_exponent_that_the_items_do_not_go_with_is_refused(make_table: TableMaker) -> None:
    table = make_table(signature=SIGNATURE, sampler=sr.selectors.Prioritized(1.0))
    table.insert_batch(arrays(1.0), [1e100, 1e99])
    with pytest.raises(ValueError, match=r"exponent is 3\.0, but an item has a priority that no item may have then"):
        table.set_priority_exponent(3.0)
    assert table.info().sampler == sr.selectors.Prioritized(1.0)
    table.set_priority_exponent(2.0)
    with pytest.raises(ValueError, match=REFUSED):
        table.insert(step(1.0), 1e150)
