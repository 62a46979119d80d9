"""Patterns: rules with conditions, checked after each step, as in Reverb's structured writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np

from shmreplay.base.checks import check_float, check_int, wire_field
from shmreplay.columns.item_structure import ItemStructure, Selected, has_steps, item_output
from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch
from shmreplay.rules.priorities import PriorityRule, priority_from_wire, priority_to_wire, read_priority, scalar_column
from shmreplay.rules.windows import FAR, REACH_HISTORY

STEP_INDEX, STEPS_SINCE_APPLIED, END_OF_EPISODE, DATA = range(4)
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Condition:
    """A condition on the newest step, made with `when`."""

    kind: int
    compare: str
    value: float
    modulo: int = 0
    column: str | None = None

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "when: a condition is neither true nor false yet, so `and`, `or`, `not` and `a < x < b` do not combine "
            "them; give both in conditions=[...]"
        )

    def native(self, signature: Signature, where: str) -> tuple[int, int, int, float, int]:
        """The condition as the core takes it."""
        column = 0 if self.column is None else scalar_column(self.column, signature, f"{where}: when.data")
        return (self.kind, COMPARISONS.index(self.compare), self.modulo, float(self.value), column)

    def to_wire(self) -> list[object]:
        """Returns plain values for msgpack; `from_wire` is its inverse."""
        return [self.kind, self.compare, self.value, self.modulo, self.column]

    @classmethod
    def from_wire(cls, wire: object) -> Condition:
        """Remakes a condition from what `to_wire` returned. Raises ValueError if it is malformed."""
        match wire:
            case [int(kind), str(compare), int() | float() as value, int(modulo), None | str() as column]:
                is_known = STEP_INDEX <= kind <= DATA and compare in COMPARISONS and modulo >= 0
                if is_known and (kind == DATA) == (column is not None):
                    return cls(kind, compare, float(value), modulo, column)
        raise ValueError(f"pattern: malformed condition {wire!r:.100}")


class _Term:
    """The left side of a condition."""

    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __init__(self, kind: int, column: str | None = None, modulo: int = 0) -> None:
        self._kind, self._column, self._modulo = kind, column, modulo

    def __mod__(self, modulo: int) -> _Term:
        return _Term(self._kind, self._column, check_int("when", "modulus", modulo, 1, FAR))

    def _condition(self, compare: str, value: object) -> Condition:
        number = float(value) if isinstance(value, (bool, np.bool_)) else check_float("when", "value", value)
        if self._modulo and number < 0:
            raise ValueError(f"when: a remainder is compared with {value!r}; expected a number >= 0")
        return Condition(self._kind, compare, number, self._modulo, self._column)

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self._condition("==", value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self._condition("!=", value)

    def __lt__(self, value: float) -> Condition:
        return self._condition("<", value)

    def __le__(self, value: float) -> Condition:
        return self._condition("<=", value)

    def __gt__(self, value: float) -> Condition:
        return self._condition(">", value)

    def __ge__(self, value: float) -> Condition:
        return self._condition(">=", value)


class _Data:
    """`when.data["column"]`: the newest step's value of a scalar column."""

    def __getitem__(self, column: str) -> _Term:
        return _Term(DATA, column)


class when:  # noqa: N801  (reads as a word: sr.when.step_index >= 3)
    """Conditions of a pattern.

    `step_index` counts the steps of the episode from 0. `steps_since_applied` counts the steps since the pattern last
    made an item, across episodes. With `end_of_episode`, the pattern is checked when the episode ends. `data["x"]` is a
    scalar of the newest step. `%` is allowed before a comparison.
    """

    step_index = _Term(STEP_INDEX)
    steps_since_applied = _Term(STEPS_SINCE_APPLIED)
    end_of_episode = Condition(END_OF_EPISODE, "==", 1.0)
    data = _Data()


@dataclass(frozen=True)
class Reference:
    """A column in a pattern's `select`. Index it with negative ints or slices; -1 is the newest step."""

    column: str

    def __getitem__(self, index: int | slice) -> Selection:
        return Selection(self.column, index)


@dataclass(frozen=True)
class Selection:
    """Steps of a column, counted from the newest, which is -1."""

    column: str
    index: int | slice

    def offsets(self, where: str) -> tuple[int, int, int, bool]:
        """Returns begin, end and step from the newest step (0), and whether it is one step without a step axis."""
        if isinstance(self.index, int) and not isinstance(self.index, bool):
            if self.index >= 0:
                raise ValueError(
                    f"{where}: {self.column}[{self.index}]; steps count from the newest, -1: expected a negative one"
                )
            return self.index + 1, self.index + 2, 1, True
        if not isinstance(self.index, slice):
            raise TypeError(f"{where}: {self.column}[{self.index!r}]; expected a negative int or a slice")
        return (*self._slice_offsets(self.index, where), False)

    def _slice_offsets(self, index: slice, where: str) -> tuple[int, int, int]:
        shown = f"{where}: {self.column}[{index.start}:{index.stop}:{index.step}]"
        step = 1 if index.step is None else index.step
        stop = 0 if index.stop is None else index.stop
        if index.start is None or index.start >= 0:
            raise ValueError(f"{shown}; expected a negative start: steps count from the newest, -1")
        if (index.stop is not None and index.stop >= 0) or stop <= index.start:
            raise ValueError(f"{shown}; expected a negative stop after the start, or none")
        if step <= 0:
            raise ValueError(f"{shown}; expected a positive step")
        return index.start + 1, stop + 1, step

    def to_wire(self) -> list[object]:
        """Returns plain values for msgpack; `from_wire` is its inverse."""
        index = self.index
        return [self.column, [index.start, index.stop, index.step] if isinstance(index, slice) else index]

    @classmethod
    def from_wire(cls, wire: object) -> Selection:
        """Remakes a selection from what `to_wire` returned. Raises ValueError if it is malformed."""
        match wire:
            case [str(column), int(index)]:
                return cls(column, index)
            case [str(column), [None | int() as start, None | int() as stop, None | int() as step]]:
                return cls(column, slice(start, stop, step))
        raise ValueError(f"pattern: malformed selection {wire!r:.100}")


@dataclass(frozen=True)
class Pattern:
    """A rule that makes an item after a step, if its conditions hold and the history has its steps.

    Args:
        select: a function of the step that returns a dict such as `{"x": step["a"][-3:], "last": step["b"][-1]}`; it is
            called once. Or such a dict with `(column, index)` pairs as values, `{"x": ("a", slice(-3, None))}`. Kept
            as a dict of `Selection`s.
        table: name of the table that gets the items; None: the writer's own.
        conditions: made with `sr.when`; all must hold.
        priority: None (the call's), a float, a scalar column's name, or `td_priority(...)`.

    Raises:
        TypeError, ValueError: the selection is malformed; the text names the column.
    """

    select: Callable[[Any], Mapping[str, Selection]] | Mapping[str, Any]
    table: str | None = None
    conditions: Sequence[Condition] = ()
    priority: PriorityRule = None

    # Makes a Table with a pattern hashable. Before Python 3.12, slices are not hashable.
    def __hash__(self) -> int:
        return hash((tuple(self.selections), self.table, tuple(self.conditions)))

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", tuple(self.conditions))
        for condition in self.conditions:
            if not isinstance(condition, Condition):
                raise TypeError(
                    f"pattern: condition {condition!r}; expected one made with sr.when, such as when.step_index >= 3"
                )
        # Evaluated now, so that two patterns made with the same function are equal.
        object.__setattr__(self, "select", _read_select(self.select))
        for name, selection in self.selections.items():
            selection.offsets(f"pattern: output {name!r}")
        if not (self.table is None or isinstance(self.table, str)):
            raise TypeError(f"pattern: table is {self.table!r}; expected a table's name, or None")

    @property
    def selections(self) -> Mapping[str, Selection]:
        """The outputs."""
        return cast(Mapping[str, Selection], self.select)

    def native(self, signature: Signature, table: int, where: str) -> dict[str, Any]:
        """The rule as the core takes it."""
        chosen = self.selections
        structure = ItemStructure.of(signature, [Selected(name, s.column) for name, s in chosen.items()])
        ranges = [selection.offsets(f"{where}: output {name!r}") for name, selection in chosen.items()]
        outputs = [
            item_output(column)
            if signature.leaves[column].spec.is_per_item
            else (column, is_squeezed, False, [(begin, end, step)])
            for (begin, end, step, is_squeezed), columns in zip(ranges, structure.columns, strict=True)
            for column in columns
        ]
        lo, hi = self._span(signature, where)
        return {
            "table": table,
            "lo": lo,
            "hi": hi,
            "period": 1,
            "at_start": 0,
            "at_end": 0,
            "reach": REACH_HISTORY,
            "is_strict": False,
            "is_unroll": False,
            "names": structure.names,
            "outputs": outputs,
            "conditions": [condition.native(signature, where) for condition in self.conditions],
            "priority": (*read_priority(self.priority, signature, where), False),
        }

    def num_steps(self, signature: Signature) -> int:
        """Steps that a writer must keep for it, the newest included."""
        return 1 - self._span(signature, "pattern")[0]

    def _span(self, signature: Signature, where: str) -> tuple[int, int]:
        """The first step that it shows, and the one after the last, counted from the newest (0)."""
        chosen = self.selections
        columns = ItemStructure.of(signature, [Selected(name, s.column) for name, s in chosen.items()]).columns
        ranges = [
            selection.offsets(f"{where}: output {name!r}")
            for (name, selection), of in zip(chosen.items(), columns, strict=True)
            if has_steps(signature, of)
        ]
        if not ranges:
            raise SignatureMismatch(f"{where}: shows only columns that are per item; expected one of steps")
        return min(begin for begin, _, _, _ in ranges), max(end for _, end, _, _ in ranges)

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        return {
            "select": [[name, selection.to_wire()] for name, selection in self.selections.items()],
            "table": self.table,
            "conditions": [condition.to_wire() for condition in self.conditions],
            "priority": priority_to_wire(self.priority),
        }

    @classmethod
    def from_wire(cls, wire: object) -> Pattern:
        """Remakes a pattern from what `to_wire` returned.

        Raises:
            TypeError, ValueError: malformed, or not a pattern that `Pattern` would take.
        """
        select, table, conditions, priority = (
            wire_field("pattern", wire, name) for name in ("select", "table", "conditions", "priority")
        )
        if not (isinstance(select, list) and isinstance(conditions, list)):
            raise ValueError(f"pattern: malformed {wire!r:.100}")
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in select):
            raise ValueError(f"pattern: malformed select {select!r:.100}")
        return cls(
            {name: Selection.from_wire(selection) for name, selection in select},
            table,  # type: ignore[arg-type]  # checked by the constructor
            [Condition.from_wire(condition) for condition in conditions],
            priority_from_wire(priority),
        )


class _Step:
    def __getitem__(self, column: str) -> Reference:
        return Reference(column)


def _read_select(select: Callable[[Any], Any] | Mapping[str, Any]) -> dict[str, Selection]:
    chosen = select(_Step()) if callable(select) else select
    if not isinstance(chosen, Mapping) or not chosen:
        raise ValueError("pattern: select gives no outputs; expected a dict such as {'x': step['a'][-3:]}")
    return {str(name): _as_selection(name, value) for name, value in chosen.items()}


def _as_selection(name: object, value: object) -> Selection:
    if isinstance(value, Selection):
        return value
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return Selection(value[0], value[1])
    raise TypeError(f"pattern: output {name!r} is {value!r}; expected step['column'][-3:], or ('column', index)")
