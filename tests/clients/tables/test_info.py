"""TableInfo: every field comes from the core, or from the priorities."""

import math
from dataclasses import FrozenInstanceError, asdict, fields
from typing import Any

import pytest

import shmreplay as sr
from shmreplay.clients.tables.info import TableInfo, readable_info

PRIORITIES = ("min_priority", "max_priority", "sum_priority")
SELECTORS = ("sampler", "remover")


class Native:
    """A native table that answers with the position of each field, and with more than is asked for."""

    def info(self) -> dict[str, Any]:
        names = [field.name for field in fields(TableInfo) if field.name not in (*PRIORITIES, *SELECTORS)]
        kinds = {"sampler": 3, "sampler_exponent": 0.7, "remover": 5, "remover_exponent": 0.0}
        return {**{name: i for i, name in enumerate(names)}, **kinds, "is_dropped": False, "something_new": 1}

    def priority_stats(self) -> tuple[float, float, float]:
        return 0.5, 8.0, 20.25


def test_every_field_is_read_under_its_own_name() -> None:
    info = TableInfo.read(Native())  # type: ignore[arg-type]
    found = asdict(info)
    assert (info.min_priority, info.max_priority, info.sum_priority) == (0.5, 8.0, 20.25)
    assert (info.sampler, info.remover) == (sr.selectors.Prioritized(0.7), sr.selectors.MaxHeap())
    rest = {name: value for name, value in found.items() if name not in (*PRIORITIES, *SELECTORS)}
    assert list(rest.values()) == list(range(len(rest)))


def test_bounds_that_are_none_are_infinite() -> None:
    class Unbounded(Native):
        def info(self) -> dict[str, Any]:
            return {**super().info(), **sr.rate_limiters.MinSize(1).numbers()}

    info = TableInfo.read(Unbounded())  # type: ignore[arg-type]
    assert (info.min_diff, info.max_diff) == (-math.inf, math.inf)


def test_what_a_client_lists_is_read_alike() -> None:
    listed = readable_info({**Native().info(), **sr.rate_limiters.MinSize(1).numbers(), "size": 7})
    assert (listed["sampler"], listed["remover"]) == (sr.selectors.Prioritized(0.7), sr.selectors.MaxHeap())
    assert (listed["min_diff"], listed["max_diff"], listed["size"]) == (-math.inf, math.inf, 7)
    assert readable_info({}) == {}


def test_every_field_is_documented() -> None:
    documentation = TableInfo.__doc__
    assert documentation is not None
    documented = {name.strip() for line in documentation.splitlines() for name in line.partition(":")[0].split(",")}
    assert [field.name for field in fields(TableInfo) if field.name not in documented] == []


def test_an_info_is_of_one_moment_and_does_not_change() -> None:
    info = TableInfo.read(Native())  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        info.size = 3  # type: ignore[misc]


def test_what_the_core_does_not_say_is_an_error_here() -> None:
    class Forgetful(Native):
        def info(self) -> dict[str, Any]:
            found = super().info()
            del found["evicted_for_room"]
            return found

    with pytest.raises(KeyError, match="evicted_for_room"):
        TableInfo.read(Forgetful())  # type: ignore[arg-type]
