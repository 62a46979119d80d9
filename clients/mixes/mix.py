"""mix: makes batches whose items come from several tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.clients.batches.arguments import check_count, check_timeout, float_array, key_array, read_array
from shmreplay.clients.batches.arrangement import Arrangement, Items
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.batches.native import NativeOutput
from shmreplay.clients.batches.sample_options import Columns, PadTo, Part, SampleOptions
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, LOOK, Stop
from shmreplay.clients.handles.randomness import Randomness
from shmreplay.clients.handles.unattached import unattached
from shmreplay.clients.mixes.parts import Joined, MixLayout, MixParts
from shmreplay.clients.samplers.sampler import Sampler, Source, check_names, decoded
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from shmreplay.errors import SignatureMismatch
from shmreplay.protocol import Deadline


def mix(parts: Iterable[tuple[TableHandle, int]], seed: Any = None) -> Mix:
    """Batches out of several tables: `sr.mix([(demonstrations, 8), (replay, 24)]).sample()` has 32 items.

    Args:
        parts: pairs of a table and the number of its items in a batch. The tables may belong to several servers.
        seed: seeds the mix's own random numbers, which no other call uses.

    Raises:
        SignatureMismatch: the tables' items have different structures; the text says where. For a table without
            `item=` that has never had an item, this is checked at the first batch.
        ValueError: `parts` is empty, a number is out of range, or a table has shards.
        TypeError: a part is not a pair of a table and an integer.
    """
    return Mix(parts, seed)


class Mix:
    """Several tables, and the number of items of each in a batch. Made by `mix`.

    Safe to use from threads, after a fork and, pickled, in other processes, which draw by other random numbers.
    """

    def __init__(self, parts: Iterable[tuple[TableHandle, int]], seed: Any = None, stop: Stop | None = None) -> None:
        given, self._counts = _read_parts(parts)
        self._random = Randomness(seed)
        self._tables = tuple(
            TableHandle(table._client, table.name, table._client._attach(table.name), own, stop)
            for table, own in zip(given, self._random.seeds(len(given)), strict=True)
        )
        self._ends = np.cumsum([0, *self._counts]).tolist()
        self._layout: MixLayout | None = None  # for the options of the last call
        _check_alike(self._tables, [_known_items(table) for table in self._tables])

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables' names, in the order in which `sources` numbers them."""
        return tuple(table.name for table in self._tables)

    @property
    def batch_size(self) -> int:
        """Number of items in a batch."""
        return sum(self._counts)

    def sample(
        self,
        timeout_s: float | None = None,
        pad_to: PadTo = None,
        columns: Columns = None,
        out: Any = None,
        time_major: bool = False,
        count: bool = True,
        replacement: bool = True,
        stratified: bool = False,
        num_threads: int = 1,
        part: Part = None,
    ) -> MixedBatch:
        """Draws from each table as its `sample` does, one table after the other.

        Args:
            timeout_s: seconds to wait for the rate limiters of all tables together.
            pad_to, columns, time_major, count, replacement, stratified, num_threads, part: as in `TableHandle.sample`,
                for each table separately. Without `pad_to`, all are padded to the longest item of any of the tables.
            out: as in `TableHandle.sample`, for all B items; not with `time_major`.

        Returns:
            The items of the first table, then those of the second, ...; `.sources` says which table each item is from.
            `.weights(beta)` are `(N * P(i)) ** -beta` with N and P of each item's own table, divided by the largest
            weight of the batch (normalise="batch"), by the largest weight that an item of the same table could have
            ("table"), or by nothing (None).

        Raises:
            RateLimitTimeout: a table did not admit all in time. The error's `.batch` is a `MixedBatch` of the items
                drawn before, from all tables, or None. Every other error that ends the call half-way, also
                KeyboardInterrupt, has this `.batch`, too.
            SignatureMismatch: the tables' items have different structures; nothing was drawn.
            ValueError, TypeError: as by `TableHandle.sample`.
        """
        asked: dict[str, Any] = {"pad_to": pad_to, "columns": columns, "time_major": time_major, "count": count}
        asked |= {"replacement": replacement, "stratified": stratified, "num_threads": num_threads, "part": part}
        options = self._options(asked)
        drawn: list[Batch] = []
        try:
            return self._draw(options, timeout_s, out, drawn)
        except BaseException as error:
            if drawn:
                error.batch = drawn[0]  # type: ignore[attr-defined]  # no call: see ARCHITECTURE.md, "Ctrl-C"
            raise

    def _options(self, asked: dict[str, Any]) -> list[SampleOptions]:
        """The checked options for each table."""
        return [
            SampleOptions.of(table._drawn_from, n, **asked) for table, n in zip(self._tables, self._counts, strict=True)
        ]

    def _draw(
        self, options: Sequence[SampleOptions], timeout_s: float | None, out: Any, drawn: list[Batch]
    ) -> MixedBatch:
        """Draws one batch with the options for each table: see `sample`. The list gets it, also if this raises."""
        deadline = Deadline(check_timeout(timeout_s))
        arrangements = [
            table._arrange(
                "sample" if own.count else LOOK, own.columns, own.pad_to, own.time_major, deadline.remaining_s()
            )
            for table, own in zip(self._tables, options, strict=True)
        ]
        layout = self._layout_of(arrangements)
        arrays: list[NDArray[Any] | None] | None = None
        if out is not None:
            arrays = self._arrays_for(layout, out)
        elif not layout.first.time_major and layout.is_alike:
            arrays = layout.new_arrays(self.batch_size, [_longest(table) for table in self._tables])
        of_tables: list[list[Batch]] = [[] for _ in self._tables]
        make = partial(self._joined, layout, of_tables, arrays)
        try:
            for source, (table, own) in enumerate(zip(self._tables, options, strict=True)):
                slices = None if arrays is None else self._slices(layout.first, arrays, source)
                _sample(of_tables[source], table, own, deadline, slices, out is not None)
        finally:
            _core.make_surely(make, drawn)
        return cast(MixedBatch, drawn[0])

    def _joined(
        self, layout: MixLayout, of_tables: Sequence[list[Batch]], arrays: Sequence[NDArray[Any] | None] | None
    ) -> MixedBatch | None:
        """Joins what the tables gave. None: they gave nothing."""
        parts = MixParts(layout)
        for source, batches in enumerate(of_tables):
            for batch in batches:
                parts.add(source, batch)
        joined = parts.joined(arrays)
        return None if joined is None else MixedBatch(joined, self)

    def sampler(
        self, prefetch: int | None = None, seed: Any = None, timeout_s: float | None = None, **sample_options: Any
    ) -> Sampler:
        """An endless iterator of batches: see `TableHandle.sampler`, and `sample` for the options.

        `prefetch=None` is 0 if any of the tables consumes its items. Its batches can be given to this mix's
        `update_priorities`.
        """
        check_names("mix", self.sample, sample_options)
        options = self._options(sample_options)
        stop = Stop()
        own = Mix(zip(self._tables, self._counts, strict=True), seed, stop)
        consumes = options[0].count and any(table.spec.consuming for table in self._tables)
        draw = partial(own._draw, options)
        source = Source("mix", draw, own._tables, stop, consumes, takes_out=not options[0].time_major)
        return Sampler(source, prefetch, timeout_s)

    def update_priorities(
        self,
        items: MixedBatch | ArrayLike,
        priorities: ArrayLike,
        sources: ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Gives items new priorities, each in its own table. Items that were removed are skipped.

        Args:
            items: a batch of this mix; or keys of some of its items, int64 `[K]`, together with their `sources`, since
                a key does not say which table it belongs to.
            priorities: `[B]` or `[K]`, finite, >= 0, of any real dtype.
            sources: integers `[K]`, the table of each key, as in `batch.sources`; None with a batch.
            timeout_s: seconds to wait for each arena's lock.

        Returns:
            How many of the items still exist.

        Raises:
            ValueError: a priority is negative or not finite, a source is not the number of a table, the arguments have
                different lengths, or the batch is from another mix; nothing was changed.
            TypeError: keys without sources, keys that are not int64, or a batch of a single table.
        """
        keys, of = self._keys(items, sources)
        values = float_array("mix", "priorities", priorities)
        if not len(keys) == len(of) == len(values):
            raise ValueError(
                f"mix: {len(keys)} keys, {len(of)} sources and {len(values)} priorities; expected as many of each"
            )
        for source in np.unique(of):
            places = np.flatnonzero(of == source)
            if (bad := self._tables[source]._native.first_bad_priority(values[places])) >= 0:
                raise ValueError(f"mix: priorities[{places[bad]}] is {values[places[bad]]}; {EXPECTED_PRIORITY}")
        updated = 0
        for source in np.unique(of):
            own = of == source
            updated += self._tables[source].update_priorities(keys[own], values[own], timeout_s)
        return updated

    def _keys(
        self, items: MixedBatch | ArrayLike, sources: ArrayLike | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if isinstance(items, MixedBatch):
            if not self._is_same(items.mix):
                raise ValueError(f"mix: the batch is from {items.mix!r}, not from {self!r}; update it there")
            if sources is not None:
                raise ValueError("mix: a batch has its own sources; pass sources= only with keys")
            return items.keys, items.sources
        if isinstance(items, Batch):
            raise TypeError("mix: the batch is from a single table; update it there, or pass a batch of this mix")
        if sources is None:
            raise TypeError(
                "mix: keys do not say which table they belong to; pass the batch, or some of its keys with their "
                "sources="
            )
        of = read_array("mix", "sources", sources, "integers, as batch.sources")
        if of.dtype.kind not in "iu":
            raise TypeError(f"mix: sources have dtype {of.dtype}; expected integers, as batch.sources")
        of = of.reshape(-1).astype(np.int64)
        wrong = np.flatnonzero((of < 0) | (of >= len(self._tables)))
        if len(wrong):
            raise ValueError(
                f"mix: sources[{wrong[0]}] is {of[wrong[0]]}; expected 0 to {len(self._tables) - 1}, the tables "
                f"{', '.join(map(repr, self.tables))}"
            )
        return key_array("mix", items), of

    def _is_same(self, other: Mix) -> bool:
        """Whether it mixes the same tables in the same order."""
        mine, theirs = ([(table._client.address, table.name) for table in mix._tables] for mix in (self, other))
        return mine == theirs

    def __reduce__(self) -> tuple[Any, ...]:
        parts = list(zip(self._tables, self._counts, strict=True))
        return unattached, (Mix, repr(self), Mix, parts, self._random.for_pickle())

    # --- putting them together -----------------------------------------------------------------------------------

    def _layout_of(self, arrangements: Sequence[Arrangement]) -> MixLayout:
        """The layout for these arrangements. Raises SignatureMismatch if the tables' items differ in structure."""
        layout = self._layout
        if layout is None or not layout.is_of(arrangements):
            _check_alike(self._tables, [arrangement.items for arrangement in arrangements])
            layout = self._layout = MixLayout(arrangements)
        return layout

    def _arrays_for(self, layout: MixLayout, out: Any) -> list[NDArray[Any] | None]:
        arrangement = layout.first
        if arrangement.time_major:
            raise ValueError("mix: out= needs time_major=False; leave out one of the two options")
        if not layout.is_alike:
            raise ValueError("mix: a column has a codec in one table and none in another, so out= is not possible")
        arrays = arrangement.arrays(out)
        for output, array in zip(arrangement.outputs, arrays, strict=True):
            if output.spec.is_coded:
                continue
            if not isinstance(array, np.ndarray) or array.ndim == 0 or len(array) != self.batch_size:
                got = list(array.shape) if isinstance(array, np.ndarray) else type(array).__name__
                raise ValueError(f"mix: out, {output.path!r} is {got}; expected an array of {self.batch_size} items")
        return arrays

    def _slices(self, arrangement: Arrangement, arrays: Sequence[NDArray[Any] | None], source: int) -> Any:
        part = slice(self._ends[source], self._ends[source + 1])
        return arrangement.unflatten([None if array is None else array[part] for array in arrays])

    def __repr__(self) -> str:
        named = ", ".join(f"{name!r}: {n}" for name, n in zip(self.tables, self._counts, strict=True))
        return f"<shmreplay mix of {named}>"


class MixedBatch(Batch):
    """B items of several tables, in the order of the mix's tables. All else is as in `Batch`.

    `probabilities`, `table_size`, `ages` and `times_sampled` are those of each item in its own table. `keys` have a
    meaning only together with `sources`.

    Attributes:
        mix: the mix that drew it.
        sources: int64 `[B]`: number of the table, in the mix, that each item is from.
    """

    def __init__(self, joined: Joined, mix: Mix) -> None:
        counts = [len(part) for part in joined.parts]
        arrangement = joined.arrangement
        super().__init__(joined.native, sum(counts), arrangement.items.signature, 0.0, arrangement.time_major)
        self._shown = joined.shown
        self.mix = mix
        self.sources: NDArray[np.int64] = np.repeat(np.array(joined.sources, np.int64), counts)
        self._table_probabilities = np.repeat([part._table_probability() for part in joined.parts], counts)

    def _table_probability(self) -> Any:
        return self._table_probabilities  # of each item's own table

    def __repr__(self) -> str:
        return f"<MixedBatch of {len(self)} items of {self.mix!r}: {self._shapes()}>"


def _read_parts(parts: Iterable[tuple[TableHandle, int]]) -> tuple[list[TableHandle], list[int]]:
    tables, counts = [], []
    for part in parts:
        if isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], ShardedTable):
            raise ValueError(
                f"mix: table {part[0].name!r} has shards, and a mix takes only tables without; sample it by itself, or "
                "create it without shards"
            )
        if not (isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], TableHandle)):
            raise TypeError(f"mix: {part!r} is no pair of a table and a number; expected (client.table(...), 8)")
        part[0]._control()  # raises if the table was dropped
        tables.append(part[0])
        counts.append(check_count(f"mix: table {part[0].name!r}", "n", part[1]))
    if not tables:
        raise ValueError("mix: no tables; expected at least one pair of a table and a number")
    return tables, counts


def _structure(table: TableHandle) -> tuple[bytes, list[NativeOutput] | None]:
    """Names and outputs of the table's items; None for the outputs if it has never held an item."""
    while True:
        status, names, outputs = table._native.structure(False, False, None)
        if status == 0:
            return names, outputs
        table._recover_or_raise(status, "sample", None)


def _known_items(table: TableHandle) -> Items | None:
    """The structure of the table's items; None: not known before the first item."""
    names, outputs = _structure(table)
    if outputs is None and table.spec.item is not None:
        declared = table.spec.item.native(table._sig, 0, table._where)
        names, outputs = declared["names"], [(column, squeezed, 1) for column, squeezed, *_ in declared["outputs"]]
    return None if outputs is None else Items(table._sig, names, outputs)


def _longest(table: TableHandle) -> list[int]:
    """The rows of each output in the table's longest item so far, which batches are padded to."""
    return [rows for _, _, rows in _structure(table)[1] or []]


def _check_alike(tables: Sequence[TableHandle], items: Sequence[Items | None]) -> None:
    known = [(table, own) for table, own in zip(tables, items, strict=True) if own is not None]
    for table, own in known[1:]:
        if different := known[0][1].differences(own):
            raise SignatureMismatch(
                f"mix: items of {known[0][0]._where} and of {table._where} differ: {'; '.join(different)}; expected "
                "one structure"
            )


def _sample(
    drawn: list[Batch], table: TableHandle, options: SampleOptions, deadline: Deadline, slices: Any, must_fit: bool
) -> None:
    """Draws a batch into `slices`; into new arrays if an item that is too long for these was inserted meanwhile.

    The list gets the batch, also if this raises.
    """
    try:
        table._draw(options, deadline.remaining_s(), slices, drawn)
    except ValueError:
        if slices is None or must_fit or drawn:
            raise
        table._draw(options, deadline.remaining_s(), None, drawn)
    decoded(drawn[0])
