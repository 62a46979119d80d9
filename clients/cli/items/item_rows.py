"""StoredOutput and PartSteps: the rows of a file's items, and the steps that they show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.cli.items.item_file import EXPORT_AGAIN, NO_ROW, REPEATED, ItemFile, Member
from shmreplay.clients.handles.step_conversion import ConvertedStep
from shmreplay.columns.codecs import Bytes, DamagedBytes
from shmreplay.columns.leaves import Leaf
from shmreplay.errors import ShmReplayError

CHECKED_BYTES = 2**20  # read at a time


class StoredOutput:
    """One output of the file's items, read and checked part by part."""

    def __init__(self, items: ItemFile, number: int, leaf: Leaf, path: str) -> None:
        def member(kind: str, dtype: Any) -> Member:
            name = f"{kind}/{path}" if path else kind
            found = items.member(name, np.dtype(dtype))
            if found is None:
                raise ShmReplayError(f"{items.path} has no array {name!r}; {EXPORT_AGAIN}")
            return found

        self.leaf, self.squeezed, self._file = leaf, items.layout.squeezed[number], items.path
        self._data = member("data", leaf.spec.dtype)
        self._mask = member("mask", np.bool_)
        self._shows = None if leaf.spec.is_per_item else member("shows", np.int32)
        self._sizes = member("sizes", np.int64) if leaf.is_whole_step else None
        if None in leaf.spec.shape and not leaf.is_whole_step:
            self._sizes = member("sizes", np.int32)
        self._check_shapes(len(items))
        if self._shows is not None:
            self._check_steps(member("shows", np.int32), items.numbers["num_steps"])
        if leaf.is_whole_step:
            self._check_values(member("data", np.uint8), member("sizes", np.int64), member("shows", np.int32))
        elif self._sizes is not None:
            self._check_sizes(member("sizes", np.int32))

    def _check_shapes(self, n: int) -> None:
        self._mask.expect((n,) if self.squeezed else (n, None))
        rows, spec = self._mask.shape, self.leaf.spec.shape
        self._data.expect((None,) if self.leaf.is_whole_step else (*rows, *spec))
        if self._shows is not None:
            self._shows.expect(rows)
        if self._sizes is not None:
            self._sizes.expect(rows if self.leaf.is_whole_step else (*rows, spec.count(None)))

    def _check_steps(self, shows: Member, num_steps: NDArray[np.int32]) -> None:
        first = 0
        for part in shows.parts(CHECKED_BYTES):
            of, rows = num_steps[first : first + len(part)], part.reshape(len(part), -1)
            first += len(part)
            if rows.size and (rows.min() < NO_ROW or (rows.max(1) >= of).any()):
                raise ShmReplayError(
                    f"{self._file}: its items show steps of {self.leaf.path!r} that they do not have; {EXPORT_AGAIN}"
                )

    def _check_values(self, data: Member, sizes: Member, shows: Member) -> None:
        """Checks stored steps. The core takes their bytes as they are, so errors would come when they are sampled."""
        item = 0
        for of_part in sizes.parts(CHECKED_BYTES):
            for of_item, shown in zip(of_part, shows.read(len(of_part)), strict=True):
                for size, step in zip(np.atleast_1d(of_item).tolist(), np.atleast_1d(shown).tolist(), strict=True):
                    stored = data.read(max(size, 0))
                    if step >= 0 or step == REPEATED:
                        self._check_value(stored, item)
                item += 1

    def _check_value(self, stored: Bytes, item: int) -> None:
        try:
            self.leaf.codec.decode(stored)
        except DamagedBytes as error:
            raise ShmReplayError(
                f"{self._file}: its item {item} has a step that cannot be decoded: {error}; {EXPORT_AGAIN}"
            ) from error

    def _check_sizes(self, sizes: Member) -> None:
        """Checks the sizes of rows. Those of missing rows are 0."""
        padded = [
            has
            for size, has in zip(self.leaf.spec.shape, self._data.shape[-len(self.leaf.spec.shape) :], strict=True)
            if size is None
        ]
        for part in sizes.parts(CHECKED_BYTES):
            if ((part < 0) | (part > padded)).any():
                raise ShmReplayError(
                    f"{self._file}: its sizes of {self.leaf.path!r} are not such as its data have; {EXPORT_AGAIN}"
                )

    @property
    def bytes_per_item(self) -> int:
        """The approximate size of an item."""
        return int(np.prod(self._data.shape[1:], dtype=np.int64)) * self._data.dtype.itemsize

    def read(self, n: int) -> None:
        """Reads the next n items."""
        self.mask = self._mask.read(n)
        self.shows = None if self._shows is None else self._shows.read(n)
        self.sizes = None if self._sizes is None else self._sizes.read(n)
        if not self.leaf.is_whole_step:
            data = self._data.read(n)
            self.data = data.view(self.leaf.spec.dtype)
            return
        assert self.sizes is not None
        sizes = np.maximum(self.sizes, 0)
        self._starts = np.cumsum(sizes.reshape(-1)).reshape(sizes.shape) - sizes
        self.data = self._data.read(int(sizes.sum()))

    def shape_of(self, item: int) -> tuple[int, ...] | None:
        """The step that each row of an item shows; None for a column that is per item."""
        if self.shows is None:
            return None
        steps: list[int] = np.atleast_1d(self.shows[item]).tolist()
        return tuple(step for step in steps if step != NO_ROW)

    def value(self, place: tuple[int, ...]) -> Any:
        """The value of one row, as the core takes it: an array; with a codec its bytes, or None if it is missing."""
        if self.leaf.is_whole_step:
            assert self.sizes is not None
            start = int(self._starts[place])
            return self.data[start : start + int(self.sizes[place])].copy()
        if not self.leaf.spec.is_coded:
            return np.array(self.data[place])  # also if the row is a number: then an array without axes
        if not self.mask[place] and self.leaf.spec.optional:
            return None
        row = self.data[place]
        if self.sizes is not None:
            free = iter(self.sizes[place].tolist())
            row = row[tuple(slice(next(free)) if size is None else slice(None) for size in self.leaf.spec.shape)]
        return self.leaf.codec.encode(np.array(row))


class PartSteps:
    """The steps that the items of a part show. Each step has all values that any of the items shows of it."""

    def __init__(
        self,
        leaves: Sequence[Leaf],
        outputs: Sequence[StoredOutput],
        episodes: NDArray[np.int64],
        begins: NDArray[np.int64],
    ) -> None:
        self._leaves, self._outputs = leaves, [output for output in outputs if output.shows is not None]
        # By episode, step and column: an output that has the value, and the place in it.
        self._cells: dict[int, dict[int, dict[int, tuple[StoredOutput, tuple[int, ...]]]]] = {}
        for output in self._outputs:
            shows = output.shows
            assert shows is not None
            places = np.nonzero((shows >= 0) | (shows == REPEATED))
            steps = begins[places[0]] + np.maximum(shows[places], 0)
            listed = (values.tolist() for values in (episodes[places[0]], steps, *places))
            for episode, step, *place in zip(*listed, strict=True):
                cells = self._cells.setdefault(episode, {}).setdefault(step, {})
                cells.setdefault(output.leaf.index, (output, tuple(place)))

    def known(self, episode: int, step: int) -> set[int]:
        """The columns of a step that at least one item shows."""
        return set(self._cells.get(episode, {}).get(step, ()))

    def row(self, episode: int, step: int) -> ConvertedStep:
        """A step, with 0 in the columns that no item shows."""
        cells = self._cells.get(episode, {}).get(step, {})
        columns: list[Any] = []
        for leaf in self._leaves:
            if leaf.spec.is_per_item:
                columns.append(None)
            elif (cell := cells.get(leaf.index)) is not None:
                columns.append(cell[0].value(cell[1]))
            else:
                columns.append(_nothing(leaf))
        return ConvertedStep(columns)

    def needed(self, item: int, begin: int) -> Iterator[tuple[int, int]]:
        """Yields each step that an item shows, with the column that it shows of it."""
        for output in self._outputs:
            assert output.shows is not None
            for step in np.atleast_1d(output.shows[item]).tolist():
                if step >= 0 or step == REPEATED:
                    yield begin + max(step, 0), output.leaf.index


def _nothing(leaf: Leaf) -> Any:
    if leaf.is_whole_step:
        return leaf.codec.encode(0)  # type: ignore[arg-type]
    if leaf.spec.optional and leaf.spec.is_coded:
        return None
    zeros = np.zeros(leaf.spec.least_shape, leaf.spec.dtype)
    return leaf.codec.encode(zeros) if leaf.spec.is_coded else zeros
