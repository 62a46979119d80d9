"""SampleOptions: the options of a caller that draws batches, checked once."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.clients.batches.arguments import check_count
from shmreplay.clients.batches.decoding import Ragged, check_ragged
from shmreplay.clients.ranks import check_rank
from shmreplay.columns.signature import Signature
from shmreplay.selectors import Prioritized, Selector, Uniform

Columns: TypeAlias = str | Iterable[str] | None
PadTo: TypeAlias = int | Mapping[str, int] | None
Part: TypeAlias = tuple[int, int] | None  # rank, world_size

MAX_THREADS = _core.MAX_GATHER_THREADS


class DrawnFrom(NamedTuple):
    """What the checks of options need to know of the table that batches are drawn from."""

    where: str  # how errors name it
    sampler: Selector
    signature: Signature
    num_shards: int = 1


class SampleOptions(NamedTuple):
    """Checked options of `sample`. The fields have the names of its arguments.

    One value serves many calls. Each call adds its timeout and the arrays that it writes into.

    Attributes:
        at_least: n if the caller gave none.
        native: the options as the core takes them.
    """

    n: int
    at_least: int
    pad_to: PadTo
    columns: Columns
    time_major: bool
    count: bool  # type: ignore[assignment]  # in the place of tuple.count
    replacement: bool
    stratified: bool
    ragged: Ragged
    num_threads: int
    part: Part
    native: _core.SampleOptions

    @classmethod
    def of(
        cls,
        table: DrawnFrom,
        n: int,
        at_least: int | None = None,
        pad_to: PadTo = None,
        columns: Columns = None,
        time_major: bool = False,
        count: bool = True,
        replacement: bool = True,
        stratified: bool = False,
        ragged: Ragged = "pad",
        num_threads: int = 1,
        part: Part = None,
    ) -> SampleOptions:
        """Checks the options of a call. `pad_to` and `columns` are checked later, when the table's items are known.

        Raises:
            ValueError: an option is out of range or contradicts another one, or the table's sampler, its shards or a
                column do not allow it.
            TypeError: an option has the wrong type.
        """
        where = table.where
        if ragged != "pad":
            check_ragged(where, ragged, table.signature)
        n = check_count(where, "n", n)
        at_least = n if at_least is None else check_count(where, "at_least", at_least, n)
        if table.num_shards > 1:
            _check_shards(table, replacement, stratified, part)
        if stratified:
            _check_stratified(where, table.sampler, replacement)
        rank, world_size = (0, 1) if part is None else _check_part(where, table.sampler, replacement, part)
        num_threads = check_count(where, "num_threads", num_threads, MAX_THREADS)
        count, distinct = bool(count), not replacement
        native = _core.SampleOptions(n, at_least, count, distinct, num_threads, rank, world_size)
        return cls(
            n,
            at_least,
            pad_to,
            columns,
            bool(time_major),
            count,
            not distinct,
            bool(stratified),
            ragged,
            num_threads,
            part,
            native,
        )

    @property
    def is_arranged(self) -> bool:
        """Whether the batches asked for differ from all outputs as the table has them."""
        return self.columns is not None or self.pad_to is not None or self.time_major

    @property
    def asked(self) -> list[str]:
        """Names of the options that are not the default ones."""
        defaults = {**_DEFAULTS, "at_least": self.n}
        return [name for name, default in defaults.items() if getattr(self, name) != default]

    def spread(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """The n numbers in [0, 1) to draw by. In a stratified draw, number i lies in the i-th of n equal parts."""
        if not self.stratified:
            return uniforms
        return np.minimum((np.arange(self.n) + uniforms) / self.n, np.nextafter(1.0, 0.0))

    def too_few_items(self, table: DrawnFrom, available: int, done: int) -> ValueError:
        """Returns the error for a call without replacement that has no item left to draw."""
        items = "items of positive priority" if isinstance(table.sampler, Prioritized) else "items"
        of_part = f" in part {self.part}" if self.part is not None else ""
        if done > 0:
            return ValueError(
                f"{table.where}: replacement=False: {done} of the {self.n} items asked for were drawn, see the error's "
                f".batch, and none is left{of_part}; others were removed, or lost their priority, during the call"
            )
        return ValueError(
            f"{table.where}: n is {self.n} with replacement=False, but the table has {available} {items}{of_part}; "
            "expected at most as many, or replacement=True"
        )


_DEFAULTS = {
    name: option.default
    for name, option in inspect.signature(SampleOptions.of).parameters.items()
    if option.default is not option.empty
}


def _check_shards(table: DrawnFrom, replacement: bool, stratified: bool, part: Part) -> None:
    """Raises ValueError for draws that need all shards together, since each shard draws separately."""
    asked = (
        ("replacement=False", not replacement),
        ("stratified=True", stratified),
        (f"part={part}", part is not None),
    )
    for name, is_asked in asked:
        if is_asked:
            raise ValueError(
                f"{table.where}: {name}, but it has {table.num_shards} shards, each of which draws separately; "
                "leave it out, or create the table without shards"
            )


def _check_stratified(where: str, sampler: Selector, replacement: bool) -> None:
    """Raises ValueError if stratified draws are impossible with this sampler or without replacement."""
    if not replacement:
        raise ValueError(f"{where}: stratified=True and replacement=False exclude each other; expected one of them")
    if not isinstance(sampler, (Uniform, Prioritized)):
        raise ValueError(
            f"{where}: stratified=True, but its sampler is {sampler!r}; expected a random one, Uniform or Prioritized"
        )


def _check_part(where: str, sampler: Selector, replacement: bool, part: tuple[int, int]) -> tuple[int, int]:
    """Returns rank and world_size.

    Raises:
        TypeError: `part` is not a pair of integers.
        ValueError: the rank is out of range; or the draws are with replacement, or not random.
    """
    rank, world_size = check_rank(where, part)
    if replacement:
        raise ValueError(f"{where}: part is {part}, but replacement=True; expected replacement=False")
    if not isinstance(sampler, (Uniform, Prioritized)):
        raise ValueError(f"{where}: part is {part}, but its sampler is {sampler!r}; expected Uniform or Prioritized")
    return rank, world_size
