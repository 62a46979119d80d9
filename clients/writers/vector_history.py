"""The steps that a vector writer's streams hold, selected by their distance from each stream's newest step."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.writers.history import Form, as_array, as_int, check_has_steps
from shmreplay.columns.signature import Signature


class HoldsStreams(Protocol):
    """What a history of many streams needs from its writer."""

    _sig: Signature
    _history: int

    @property
    def _where(self) -> str: ...

    def _cell(self, stream: int, step: int, column: int) -> Any:
        """The value of one stream, step and column."""


class VectorSelection:
    """Steps of one column, at the same distances from the newest step in every stream.

    `writer.history["observation"][-4:]` gives one, and `create_items(trajectory=)` takes it. It moves with the streams:
    -1 is each stream's newest step when the selection is used.
    """

    def __init__(self, writer: HoldsStreams, column: int, steps: tuple[int, ...], is_squeezed: bool) -> None:
        self.column = column
        self.steps = steps
        self.is_squeezed = is_squeezed
        self._writer = writer

    def numpy(self, stream: int) -> NDArray[Any]:
        """A copy of the selected values of one stream; the step axis first, unless an int selected one step.

        Raises:
            ShmReplayError: the stream holds fewer steps, or there is no such stream.
            SignatureMismatch: a step lacks the column.
            TypeError: the table has no signature, so its steps are not arrays.
        """
        return as_array(self._values(stream), self._writer._sig.leaves[self.column], self.is_squeezed)

    def tolist(self, stream: int) -> Any:
        """The selected values of one stream without padding: a list, or the value itself if an int selected one step.

        Raises:
            ShmReplayError, SignatureMismatch: as `numpy`.
        """
        values = self._values(stream)
        return values[0] if self.is_squeezed else values

    def _values(self, stream: int) -> list[Any]:
        return [self._writer._cell(stream, step, self.column) for step in self.steps]

    def _offsets(self) -> list[int]:
        return [step + 1 for step in self.steps]

    def _form(self, oldest: int, newest: int) -> Form:
        return (self.column, self.is_squeezed, self.steps)

    def __repr__(self) -> str:
        return f"<steps {list(self.steps)} of column {self._writer._sig.leaves[self.column].path!r} in every stream>"


class VectorColumnHistory:
    """One column of every stream. Indexed by ints, slices and lists of ints, counted from the newest step, -1."""

    def __init__(self, writer: HoldsStreams, column: int) -> None:
        self._writer = writer
        self._column = column

    def __getitem__(self, index: int | slice | Sequence[int] | NDArray[np.integer[Any]]) -> VectorSelection:
        check_has_steps(self)
        if isinstance(index, slice):
            return VectorSelection(self._writer, self._column, self._sliced(index), False)
        if isinstance(index, (list, tuple, range)) or (isinstance(index, np.ndarray) and index.ndim > 0):
            return VectorSelection(self._writer, self._column, tuple(self._step(place) for place in index), False)
        return VectorSelection(self._writer, self._column, (self._step(index),), True)

    def _sliced(self, index: slice) -> tuple[int, ...]:
        """The steps of a slice whose ends are counted from the newest step. The nearer end may be left out."""
        stride = 1 if index.step is None else operator.index(index.step)
        if stride == 0:
            raise ValueError(f"{self._where}: slice step is 0")
        start, stop = index.start, index.stop
        far, near = (start, stop) if stride > 0 else (stop, start)
        if far is None or (near is not None and operator.index(near) >= 0):
            raise ValueError(
                f"{self._where}: {index!r}; streams hold different numbers of steps, so count from the newest, as in "
                "[-4:]"
            )
        first = self._step(start) if start is not None else -1
        end = operator.index(stop) if stop is not None else 0
        steps = tuple(range(first, end, stride))
        return tuple(self._step(step) for step in steps)

    def _step(self, index: object) -> int:
        step = as_int(index, self._where)
        if step >= 0:
            raise ValueError(
                f"{self._where}: index {step}; streams hold different numbers of steps, so count from the newest, -1"
            )
        if step < -(self._writer._history + 1):
            raise IndexError(
                f"{self._where}: index {step} is out of range; at most {self._writer._history} steps and an open row "
                "are held"
            )
        return step

    @property
    def _where(self) -> str:
        return f"{self._writer._where}: history of column {self._writer._sig.leaves[self._column].path!r}"

    def __repr__(self) -> str:
        return f"<history of column {self._writer._sig.leaves[self._column].path!r} in every stream>"


def vector_history_of(writer: HoldsStreams) -> Any:
    """The history of every column, in the signature's structure."""
    return writer._sig.unflatten([VectorColumnHistory(writer, leaf.index) for leaf in writer._sig.leaves])
