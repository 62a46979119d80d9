"""History: the steps that a writer still holds, and selections of them for items made by hand."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from shmreplay import _core
from shmreplay.clients.batches.decoding import padded
from shmreplay.columns import structure
from shmreplay.columns.leaves import Leaf
from shmreplay.columns.signature import Signature
from shmreplay.errors import ShmReplayError, SignatureMismatch


class HoldsColumn(Protocol):
    """The history of one column, of a writer or of many streams."""

    _writer: Any
    _column: int

    @property
    def _where(self) -> str: ...


class HoldsSteps(Protocol):
    """What a history needs from its writer."""

    _sig: Signature
    _history: int

    @property
    def _where(self) -> str: ...

    @property
    def _native(self) -> _core.Writer: ...

    def _cell(self, step: int, column: int) -> Any:
        """The value of one step and column."""


Form: TypeAlias = tuple[Any, ...]


class SelectsSteps(Protocol):
    """A selection of steps, of which items are made: a `Selection` or a `VectorSelection`."""

    column: int
    is_squeezed: bool
    _writer: Any

    def _offsets(self) -> list[int]:
        """The steps counted from the newest one, which is 0."""

    def _form(self, oldest: int, newest: int) -> Form:
        """What `_offsets` and the rest come to now: equal for selections that make the same output of an item.

        Raises LookupError for a selection that cannot be used.

        Args:
            oldest, newest: steps that the writer holds.
        """


class Selection:
    """Steps of one column: what `writer.history["observation"][-4:]` gives, and `create_item(trajectory=)` takes.

    It selects these very steps: it does not move while the writer goes on, and it expires when one of the steps leaves
    the history.
    """

    def __init__(
        self, writer: HoldsSteps, column: int, steps: tuple[int, ...], is_squeezed: bool, stride: int | None = None
    ) -> None:
        self.column = column
        self.steps = steps
        self.is_squeezed = is_squeezed
        self._writer = writer
        self._stride = stride  # of evenly spaced steps, if it is known

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `numpy()`: the step axis first, unless an int selected one step."""
        spec = self._writer._sig.leaves[self.column].spec
        if None in spec.shape:
            return self.numpy().shape
        return spec.least_shape if self.is_squeezed else (len(self.steps), *spec.least_shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The column's dtype."""
        return self._writer._sig.leaves[self.column].spec.dtype

    def numpy(self) -> NDArray[Any]:
        """A copy of the selected values; rows of variable shape are padded with 0 to the longest.

        If a step was appended without a value of an optional column, that value is 0.

        Raises:
            ShmReplayError: a step has left the history.
            SignatureMismatch: a step lacks the column.
            TypeError: the table has no signature, so its steps are not arrays.
        """
        return as_array(self._values(), self._writer._sig.leaves[self.column], self.is_squeezed)

    def tolist(self) -> Any:
        """The selected values without padding: a list, or the value itself if an int selected one step.

        In a table without a signature they are the objects that were appended.

        Raises:
            ShmReplayError, SignatureMismatch: as `numpy`.
        """
        values = self._values()
        return values[0] if self.is_squeezed else values

    def _values(self) -> list[Any]:
        return [self._writer._cell(step, self.column) for step in self.steps]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError(f"{self!r}: its steps are not one array, so they cannot be read without a copy")
        return np.asarray(self.numpy(), dtype)

    def __len__(self) -> int:
        if self.is_squeezed:
            raise TypeError("a selection of one step by an int has no step axis and no len()")
        return len(self.steps)

    def _offsets(self) -> list[int]:
        """The positions of the steps, counted from the writer's newest step, which is 0."""
        oldest = int(self._writer._native.oldest_step)
        if (first := min(self.steps, default=oldest)) < oldest:
            raise expired(self._writer._where, self._writer._sig.leaves[self.column].path, first, oldest)
        newest = oldest + int(self._writer._native.num_steps) - 1
        return [step - newest for step in self.steps]

    def _form(self, oldest: int, newest: int) -> Form:
        steps, stride = self.steps, self._stride
        if not steps:
            raise LookupError
        if stride is None:
            if min(steps) < oldest:
                raise LookupError
            return (self.column, self.is_squeezed, *[step - newest for step in steps])
        if (steps[0] if stride > 0 else steps[-1]) < oldest:
            raise LookupError
        return (self.column, self.is_squeezed, stride, len(steps), steps[0] - newest, None)

    def __repr__(self) -> str:
        return f"<steps {list(self.steps)} of column {self._writer._sig.leaves[self.column].path!r}>"


def as_array(values: list[Any], leaf: Leaf, is_squeezed: bool) -> NDArray[Any]:
    """Values of a column's steps as one array, rows of variable shape padded; if squeezed, the only value."""
    if leaf.is_whole_step:
        raise TypeError("the table has no signature, so its steps are not arrays; use tolist()")
    if is_squeezed:
        return cast(NDArray[Any], values[0])
    if None in leaf.spec.shape:
        return padded(leaf, values)[0]
    return np.stack(values) if values else np.empty((0, *leaf.spec.least_shape), leaf.spec.dtype)


def check_has_steps(history: HoldsColumn) -> None:
    """Raises TypeError for a column that is per item, and therefore not in steps."""
    if history._writer._sig.leaves[history._column].spec.is_per_item:
        raise TypeError(f"{history._where}: it is per item, so it is not in steps; give it as create_item(values=...)")


def cell_value(cell: Any, leaf: Leaf) -> Any:
    """The value of a cell that the core read: an array, 0 for a missing value of an optional column.

    In a table without a signature it is the object that was appended.
    """
    if cell is _core.NO_VALUE:
        return np.zeros(leaf.spec.least_shape, leaf.spec.dtype)
    return leaf.codec.decode(cell) if leaf.spec.is_coded else cell


class ColumnHistory:
    """The held steps of one column, oldest first, an open row last. Indexed by ints, slices and lists of ints."""

    def __init__(self, writer: HoldsSteps, column: int) -> None:
        self._writer = writer
        self._column = column

    def __len__(self) -> int:
        return int(self._writer._native.num_steps)

    def __getitem__(self, index: int | slice | Sequence[int] | NDArray[np.integer[Any]]) -> Selection:
        check_has_steps(self)
        n = len(self)
        first = int(self._writer._native.oldest_step)
        if isinstance(index, slice):
            chosen = range(first, first + n)[index]
            return Selection(self._writer, self._column, tuple(chosen), False, chosen.step)
        # An array without dimensions counts as its number.
        if isinstance(index, (list, tuple, range)) or (isinstance(index, np.ndarray) and index.ndim > 0):
            steps = tuple(first + self._place(place, n) for place in index)
            return Selection(self._writer, self._column, steps, False)
        return Selection(self._writer, self._column, (first + self._place(index, n),), True, 1)

    def _place(self, index: object, n: int) -> int:
        place = as_int(index, self._where)
        if not -n <= place < n:
            raise IndexError(
                f"{self._where}: index {place} is out of range; {n} steps are held (history={self._writer._history})"
            )
        return place % n

    @property
    def _where(self) -> str:
        path = self._writer._sig.leaves[self._column].path
        return f"{self._writer._where}: history of column {path!r}"

    def __repr__(self) -> str:
        return f"<history of {len(self)} steps of column {self._writer._sig.leaves[self._column].path!r}>"


def history_of(writer: HoldsSteps) -> Any:
    """The history of every column, in the signature's structure."""
    return writer._sig.unflatten([ColumnHistory(writer, leaf.index) for leaf in writer._sig.leaves])


# A slice is begin, end and step. An output is its column, whether it is squeezed, whether it moves with a window's end,
# and its slices.
Slice: TypeAlias = tuple[int, int, int]
Output: TypeAlias = tuple[int, bool, bool, tuple[Slice, ...]]


def read_trajectory(
    trajectory: object, writer: object, where: str, kind: type[SelectsSteps]
) -> tuple[structure.Node, list[Output]]:
    """Returns the structure of a trajectory and its outputs, as the core reads them: steps counted from the newest.

    Raises:
        TypeError: a leaf is not a selection of a history.
        ValueError: the trajectory or a selection in it is empty, or a selection is of another writer's history.
        ShmReplayError: a selected step has left the history.
    """
    where = f"{where}, trajectory"
    outputs: list[Output] = []

    def add_leaf(leaf: object, path: str) -> int:
        if not isinstance(leaf, kind):
            raise TypeError(
                f"{where}: {path!r} is a {type(leaf).__name__}; expected a selection such as "
                "writer.history['observation'][-4:]"
            )
        if leaf._writer is not writer:
            raise ValueError(f"{where}: {path!r} is of another writer's history; an item has steps of one stream")
        if not (offsets := leaf._offsets()):
            raise ValueError(f"{where}: {path!r} selects no step; expected at least one")
        outputs.append((leaf.column, leaf.is_squeezed, False, tuple(slices_of(offsets))))
        return len(outputs) - 1

    return structure.parse(trajectory, add_leaf, where), outputs


def form_of(trajectory: object, writer: object, kind: type[SelectsSteps], held: tuple[int, int]) -> Form:
    """What `read_trajectory` would make of it, as a key: equal for trajectories that make the same items.

    Args:
        held: the oldest and the newest step that the writer holds.

    Raises:
        LookupError: it needs a closer look.
    """
    if type(trajectory) is kind:
        if trajectory._writer is not writer:
            raise LookupError
        return trajectory._form(*held)
    if type(trajectory) is dict:
        return (*trajectory, *[form_of(part, writer, kind, held) for part in trajectory.values()])
    if type(trajectory) in (list, tuple):
        return (type(trajectory), *[form_of(part, writer, kind, held) for part in trajectory])  # type: ignore[attr-defined]
    raise LookupError


def slices_of(offsets: list[int]) -> list[Slice]:
    """The offsets as one slice if they are evenly spaced, else as one slice each."""
    if len(offsets) > 1:
        step = offsets[1] - offsets[0]
        if step != 0 and all(b - a == step for a, b in itertools.pairwise(offsets)):
            return [(offsets[0], offsets[-1] + (1 if step > 0 else -1), step)]
    return [(offset, offset + 1, 1) for offset in offsets]


def as_int(index: object, where: str) -> int:
    """Returns the index as an int. Raises TypeError for anything else, a bool included."""
    try:
        number = operator.index(index)  # type: ignore[arg-type]  # raises TypeError if it is none
    except TypeError:
        number = None
    if number is None or isinstance(index, (bool, np.bool_)):
        raise TypeError(f"{where}: index {index!r}; expected an int, a slice or a list of ints")
    return number


def expired(where: str, path: str, step: int, oldest: int) -> ShmReplayError:
    """The error for a step that has left the history."""
    return ShmReplayError(
        f"{where}: step {step} of column {path!r} has left the writer's history, which begins at step {oldest}; "
        "select anew, or make the writer with a longer history"
    )


def missing(where: str, path: str, step: int) -> SignatureMismatch:
    """The error for a step that lacks the column."""
    return SignatureMismatch(f"{where}: step {step} lacks column {path!r}; it was appended without it")
