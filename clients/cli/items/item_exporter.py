"""Exporter: gathers items of a table, part by part, for a file of items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.cli.items.item_file import (
    MOST_AT_A_TIME,
    NO_ROW,
    NUMBERS,
    PART_BYTES,
    GrowingArray,
    ItemFileLayout,
)
from shmreplay.clients.cli.terminal.printing import Progress
from shmreplay.clients.tables.table import TableHandle
from shmreplay.errors import ShmReplayError
from shmreplay.tables.shards import KEY_SHIFT


class Exporter:
    """Gathers items part by part, in temporary files in that directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.layout = ItemFileLayout(b"", (), ())
        self.columns: dict[str, GrowingArray] = {}
        self.num_items = 0
        for name, dtype in NUMBERS.items():
            self._add(name, np.empty(0, dtype))

    def close(self) -> None:
        for column in self.columns.values():
            column.close()

    def add_table(
        self, name: str, shards: tuple[TableHandle, ...], chosen: NDArray[np.int64] | None, timeout_s: float
    ) -> int:
        """Adds all items of a table, or those with the `chosen` keys. Returns how many keys it looked up.

        Raises ShmReplayError if a chosen item is not in the table.
        """
        numbers = np.zeros(len(shards), int)
        work = list(_keys(shards, chosen))
        total = sum(len(keys) for _, keys in work)
        if chosen is not None and total < len(chosen):
            key = np.setdiff1d(chosen, np.concatenate([keys for _, keys in work]))[0]
            raise ShmReplayError(f"table {name!r} has no item {key}: none of its {len(shards)} shards has that key")
        progress = Progress("items are read", total)
        for number, keys in work:
            for part in _parts(shards[number], keys, timeout_s):
                if chosen is not None and (gone := np.setdiff1d(part.asked, part.batch.keys)).size:
                    raise ShmReplayError(f"table {name!r} has no item {gone[0]}, or not any more")
                numbers[number] += self._add_part(part, number, timeout_s)
                progress.tell(int(numbers.sum()))
        self.num_items = int(numbers.sum())
        return total

    def _add_part(self, part: _Part, shard: int, timeout_s: float) -> int:
        batch, table = part.batch, part.table

        def look_up(native: _core.Table) -> tuple[int, tuple[int, Any, Any]]:
            status, *found = native.places(np.ascontiguousarray(batch.keys), timeout_s)
            return status, tuple(found)

        done, found, places = table._repeat("get", timeout_s, look_up)
        kept = found[:done]
        native, num_steps = batch._native, places[0]
        layout = ItemFileLayout(native.names, tuple(native.columns), tuple(bool(one) for one in native.squeezed))
        if done > 0:
            self.layout = layout
        episodes = batch.episodes + (shard << KEY_SHIFT)
        numbers = (batch.keys, batch.priorities, batch.times_sampled, batch.ages, episodes, batch.steps)
        for name, values in zip(NUMBERS, (*(values[kept] for values in numbers), num_steps), strict=True):
            self._add(name, values)
        for number, path in enumerate(layout.paths(table._sig) if done > 0 else ()):
            self._add_output(batch, number, path, kept, places[1][number])
        return int(done)

    def _add_output(
        self, batch: Batch, number: int, path: str, kept: NDArray[np.uint32], places: tuple[Any, Any]
    ) -> None:
        leaf = batch._signature.leaves[batch._native.columns[number]]
        shown, mask = batch._shown[number], batch._masks[number]
        if leaf.is_whole_step:
            stored, sizes = batch._native.data[number]
            sizes = sizes[: len(batch)]
            starts = np.cumsum(np.maximum(sizes, 0).reshape(-1)).reshape(sizes.shape) - np.maximum(sizes, 0)
            chosen = [
                stored[start : start + size]
                for start, size in zip(starts[kept].reshape(-1).tolist(), sizes[kept].reshape(-1).tolist(), strict=True)
                if size > 0
            ]
            self._add(_member("data", path), np.concatenate([np.empty(0, np.uint8), *chosen]))
            self._add(_member("sizes", path), sizes[kept], -1)
        else:
            self._add(_member("data", path), shown.data[kept])
            if shown.sizes is not None:
                self._add(_member("sizes", path), shown.sizes[kept])
        self._add(_member("mask", path), mask[kept])
        if not leaf.spec.is_per_item:
            self._add(_member("shows", path), _padded(*places, mask.shape[1:]), NO_ROW)

    def _add(self, name: str, rows: NDArray[Any], fill: int = 0) -> None:
        if name not in self.columns:
            self.columns[name] = GrowingArray(self._directory, rows.dtype, fill)
        self.columns[name].add(rows)


class _Part:
    """Some items of a table, and the keys that were looked up for them."""

    def __init__(self, table: TableHandle, asked: NDArray[np.int64], batch: Batch) -> None:
        self.table, self.asked, self.batch = table, asked, batch


def _keys(shards: tuple[TableHandle, ...], chosen: NDArray[np.int64] | None) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The keys to look up in each shard."""
    for number, shard in enumerate(shards):
        if chosen is None:
            yield number, shard.keys()
        else:
            yield number, chosen if len(shards) == 1 else chosen[chosen >> KEY_SHIFT == number]


def _parts(table: TableHandle, keys: NDArray[np.int64], timeout_s: float) -> Iterator[_Part]:
    """The items of the keys, in parts of about PART_BYTES."""
    first, n = 0, 1
    while first < len(keys):
        asked = keys[first : first + n]
        batch = table.get(asked, timeout_s)
        yield _Part(table, asked, batch)
        first += n
        if len(batch) > 0:
            num_bytes = sum(shown.data.nbytes for shown in batch._shown if isinstance(shown.data, np.ndarray))
            n = max(1, min(MOST_AT_A_TIME, PART_BYTES * len(batch) // max(num_bytes, 1)))


def _padded(counts: NDArray[np.int32], steps: NDArray[np.int32], rest: tuple[int, ...]) -> NDArray[np.int32]:
    """The steps that the rows of each item show, `[n]` or `[n, L]`."""
    shows = np.full((len(counts), *rest), NO_ROW, np.int32)
    if not rest:
        shows[:] = steps
        return shows
    item = np.repeat(np.arange(len(counts)), counts)
    shows[item, np.arange(len(steps)) - np.repeat(np.cumsum(counts) - counts, counts)] = steps
    return shows


def _member(kind: str, path: str) -> str:
    return f"{kind}/{path}" if path else kind
