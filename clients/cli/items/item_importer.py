"""Importer: inserts the items of a file into a table. Items that shared steps before share them again.

Each item is made by hand, by a rule that says which step each of its rows shows. All items of an episode come from one
stream. A step that several items show is appended once, if the stream still holds it when the next item needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType

import numpy as np

from shmreplay.clients.cli.items.item_file import EXPORT_AGAIN, MOST_AT_A_TIME, PART_BYTES, ItemFile
from shmreplay.clients.cli.items.item_rows import PartSteps, StoredOutput
from shmreplay.clients.cli.items.item_stream import ItemStream, Shape
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns.codecs import Bytes
from shmreplay.columns.heap_values import join_item_values
from shmreplay.errors import ShmReplayError, SignatureMismatch

MOST_STREAMS = 64  # for episodes whose items alternate in the file


class Importer:
    """Inserts the items of a file into the shards of a table, in the file's order. A context manager."""

    def __init__(self, shards: Sequence[TableHandle], items: ItemFile, wait_s: float) -> None:
        self.num_inserted = 0
        self._items, self._shards, self._wait_s = items, shards, wait_s
        self._sig = items.table.sig
        self._outputs = [
            StoredOutput(items, number, shards[0]._sig.leaves[column], path)
            for number, (column, path) in enumerate(zip(items.layout.columns, items.paths, strict=True))
        ]
        if shards[0]._native.first_bad_priority(np.ascontiguousarray(items.numbers["priorities"])) >= 0:
            raise ValueError(f"{items.path} has priorities that no item may have: {EXPECTED_PRIORITY}; {EXPORT_AGAIN}")
        if int(items.numbers["num_steps"].min(initial=1)) < 1:
            raise ShmReplayError(f"{items.path} has items of no step; {EXPORT_AGAIN}")
        self._history = int(items.numbers["num_steps"].max(initial=1))
        self._most_streams = [_streams_of(shard, self._history) for shard in shards]
        for shard in shards:
            shard._plan_writer(1, self._history, [])  # raises if there is no room for it
            _check_layout(shard, items)
        self._streams: dict[int, ItemStream] = {}  # by episode, the most recently used one last
        self._num_items = [0] * len(shards)

    def insert_all(self) -> Iterator[int]:
        """Inserts one item after the other; yields how many are in.

        Raises RateLimitTimeout if the next item is not admitted within the wait; those before it are in.
        """
        per_item = max(1, sum(output.bytes_per_item for output in self._outputs))
        n = max(1, min(MOST_AT_A_TIME, PART_BYTES // per_item))
        for first in range(0, len(self._items), n):
            yield from self._insert_part(first, min(n, len(self._items) - first))

    def _insert_part(self, first: int, n: int) -> Iterator[int]:
        for output in self._outputs:
            output.read(n)
        numbers = {name: values[first : first + n] for name, values in self._items.numbers.items()}
        leaves = self._shards[0]._sig.leaves
        steps = PartSteps(leaves, self._outputs, numbers["episodes"], numbers["steps"])
        for stream in self._streams.values():
            stream.begin_part()
        for i in range(n):
            episode = int(numbers["episodes"][i])
            begin, num_steps = int(numbers["steps"][i]), int(numbers["num_steps"][i])
            stream = self._stream_of(episode)
            stream.reach(episode, begin, begin + num_steps, steps, steps.needed(i, begin), self._wait_s)
            shape = Shape(num_steps, tuple(output.shape_of(i) for output in self._outputs))
            stream.make_item(shape, begin, float(numbers["priorities"][i]), self._brought(i), self._wait_s)
            self.num_inserted += 1
            yield self.num_inserted

    def _stream_of(self, episode: int) -> ItemStream:
        """The stream of an episode. If there are too many streams, the least recently used one is reused."""
        stream = self._streams.pop(episode, None)
        if stream is None:
            shard = int(np.argmin(self._num_items))
            mine = [key for key, other in self._streams.items() if other.shard == shard]
            if len(mine) >= self._most_streams[shard]:
                stream = self._streams.pop(mine[0])
                stream.begin_episode(self._wait_s)
            else:
                stream = ItemStream(self._shards[shard], shard, self._history, self._items.layout)
        self._streams[episode] = stream
        self._num_items[stream.shard] += 1
        return stream

    def _brought(self, item: int) -> Bytes | None:
        """The item's values for columns that are per item."""
        values = {output.leaf.index: output.value((item,)) for output in self._outputs if output.leaf.spec.is_per_item}
        return join_item_values([values[leaf.index] for leaf in self._sig.item_leaves]) if values else None

    def close(self) -> None:
        """Ends the streams."""
        for stream in self._streams.values():
            # All items are in, or were refused with a reason. Closing only frees steps that no item needs, in a table
            # that may have been dropped meanwhile.
            with contextlib.suppress(ShmReplayError):
                stream.close()
        self._streams.clear()

    def __enter__(self) -> Importer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _streams_of(table: TableHandle, history: int) -> int:
    """The largest number of streams. Each takes room for a history and one chunk more, which items then lack."""
    stats = table._arena.stats()
    chunks = -(-history // stats["chunk_steps"]) + 1
    return int(max(1, min(MOST_STREAMS, stats["max_streams"] // 4, stats["num_chunks"] // 16 // chunks)))


def _check_layout(table: TableHandle, items: ItemFile) -> None:
    """Raises SignatureMismatch if the table has, or has had, items of another structure."""
    layout = items.layout
    names, outputs = table._structure("get", table._client.connection.timeout_s)
    if outputs is None or not layout.columns:
        return
    if (names, [tuple(output[:2]) for output in outputs]) != (
        layout.names,
        list(zip(layout.columns, layout.squeezed, strict=True)),
    ):
        raise SignatureMismatch(
            f"{table._where}: its items have another structure than those of {items.path}; see their outputs by "
            "`shmreplay inspect`"
        )
