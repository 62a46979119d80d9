"""ItemStream: a stream of steps, and items of it that say for each of their rows which step it shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shmreplay import _core
from shmreplay.clients.cli.items.item_file import REPEATED, ItemFileLayout
from shmreplay.clients.cli.items.item_rows import PartSteps
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.writers.history import slices_of
from shmreplay.clients.writers.selection_rule import selection_rule
from shmreplay.clients.writers.stream_handle import MAX_SELECTIONS, StreamHandle
from shmreplay.clients.writers.writer import Writer
from shmreplay.columns.codecs import Bytes
from shmreplay.rules.windows import AT_START

FAR = 2**16  # so far after an item there is no step of it


@dataclass(frozen=True)
class Shape:
    """How many steps an item has, and which of them each row of every output shows.

    -1 means a row of zeros, -2 the first step again. None instead of rows means an output that is per item.
    """

    num_steps: int
    rows: tuple[tuple[int, ...] | None, ...]

    @property
    def repeats(self) -> bool:
        return any(REPEATED in rows for rows in self.rows if rows is not None)


class ItemStream(Writer):
    """One stream in a shard, for one episode at a time. Its steps never end an episode, whatever their columns say."""

    def __init__(self, table: TableHandle, shard: int, history: int, layout: ItemFileLayout) -> None:
        StreamHandle.__init__(self, table, history, ())
        self._native = _core.Writer(table._native, history, ([], -1, False), [], 1)
        self._client = table._client
        self._layout = layout
        self._makes_items = True
        self.shard = shard
        self._numbers: dict[tuple[Shape, int], int] = {}  # the numbers of rules that the core has, by shape and place
        self._first = self._end = self._part_begin = (
            0  # positions in the episode: first step held, end, and where this part began
        )

    def begin_part(self) -> None:
        """Begins a part. The steps before it were written before it was known what its items need of them."""
        self._part_begin = self._end

    def begin_episode(self, timeout_s: float) -> None:
        """Ends the episode before."""
        if self._end > self._first:
            self.end_episode(timeout_s=timeout_s)
        self._first = self._end = self._part_begin = 0

    def reach(
        self, episode: int, begin: int, end: int, steps: PartSteps, needed: Iterable[tuple[int, int]], timeout_s: float
    ) -> None:
        """Appends steps of the episode until those from `begin` to `end` are held, with all columns that are needed.

        Raises RateLimitTimeout if there is no room for them within `timeout_s`.
        """
        held = max(self._first, self._end - self._history)
        if begin < held or begin > self._end or not self._has(needed):
            self.begin_episode(timeout_s)
        if self._end == self._first:
            self._first = self._end = self._part_begin = begin
            self._known: dict[int, set[int]] = {}
        for step in range(self._end, end):
            self.append(steps.row(episode, step), timeout_s=timeout_s)
            self._known[step] = steps.known(episode, step)
            self._known.pop(step - self._history, None)
            self._end = step + 1

    def _has(self, needed: Iterable[tuple[int, int]]) -> bool:
        """Whether the steps of earlier parts have the columns that are needed. Those of this part have all."""
        if self._part_begin <= self._first:
            return True
        return all(step >= self._part_begin or column in self._known.get(step, ()) for step, column in needed)

    def make_item(self, shape: Shape, begin: int, priority: float, values: Bytes | None, timeout_s: float) -> None:
        """Makes an item of the steps from `begin` on, which are held. Raises RateLimitTimeout if it is not admitted."""
        number = self._number(shape, begin - (self._end - 1))
        key: Any = self._native.create_selected(number, priority, timeout_s, values)
        if isinstance(key, int) and key > 0:
            return
        self._keys(-key if isinstance(key, int) and key != _core.UNFINISHED else key, "create_item", timeout_s)

    def _number(self, shape: Shape, lo: int) -> int:
        """The number under which the core knows the rule of that shape with its first step `lo` from the newest."""
        if (number := self._numbers.get((shape, lo))) is not None:
            return number
        number = len(self._numbers)
        if number == MAX_SELECTIONS:
            number = self._numbers.pop(next(iter(self._numbers)))
        self._native.set_selection(number, self._rule(shape, lo))
        self._numbers[shape, lo] = number
        return number

    def _rule(self, shape: Shape, lo: int) -> dict[str, Any]:
        outputs = tuple(
            (column, squeezed, False, () if rows is None else tuple(slices_of([lo + at for at in places(rows, shape)])))
            for column, squeezed, rows in zip(self._layout.columns, self._layout.squeezed, shape.rows, strict=True)
        )
        rule = selection_rule(self._layout.names, outputs, self._table._index)
        return {**rule, "lo": lo, "hi": lo + shape.num_steps, "at_start": AT_START.index("repeat") * shape.repeats}


def places(rows: tuple[int, ...], shape: Shape) -> list[int]:
    """The position of each row, counted from the item's first step. A row without a step lies before or after them all.

    If possible it continues the spacing of the rows beside it: evenly spaced rows take the least room in the core.
    """
    found: list[int] = []
    for index, step in enumerate(rows):
        if step >= 0:
            found.append(step)
            continue
        to_next = next((rows[j] - (j - index) for j in range(index + 1, len(rows)) if rows[j] >= 0), 0)
        before = to_next if to_next < 0 else -1 - (len(rows) - index)
        after = found[-1] + 1 if found else shape.num_steps
        if step == REPEATED or (to_next < 0 and not shape.repeats):
            found.append(before)
        else:
            found.append(after if after >= shape.num_steps else shape.num_steps + FAR + index)
    return found
