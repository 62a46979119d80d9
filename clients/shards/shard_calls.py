"""Calls on all shards of a table: which keys go to which shard, and how a call is repeated after a fork."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.clients.tables.table import TableHandle
from shmreplay.tables.shards import KEY_SHIFT

T = TypeVar("T")


def by_shard(keys: NDArray[np.int64], num_shards: int) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yields the number of each shard that has some of the keys, in order, and the positions of these keys.

    Keys that belong to no shard are left out.
    """
    numbers = keys >> KEY_SHIFT
    for number in range(num_shards):
        positions = np.flatnonzero(numbers == number)
        if len(positions) > 0:
            yield number, positions


def natives_of(shards: Sequence[TableHandle]) -> list[_core.Table]:
    """The native tables of all shards, attached again after a fork. Raises TableClosed if one was dropped."""
    return [shard._control() for shard in shards]


def repeat_on_shards(
    shards: Sequence[TableHandle],
    call: str,
    timeout_s: float | None,
    attempt: Callable[[list[_core.Table]], tuple[int, int, T]],
) -> T:
    """Returns the answer of `attempt`, once its status is 0. After a fork it attaches all shards again and repeats it.

    `attempt` returns a status, the number of the shard that the status is about, and its answer. For a status that
    is neither 0 nor that of a fork, it raises the error of that shard.
    """
    while True:
        status, number, answer = attempt(natives_of(shards))
        if status == 0:
            return answer
        shards[number]._recover_or_raise(status, call, timeout_s)
