"""Windows: rules by which the steps of an episode become items around reference steps.

For a window of steps r - 1 .. r + 2 (`{"x": (-1, 3)}`) over an episode of six steps 0 .. 5, with the reference steps in
brackets:

    at_start="skip"      first item at r = 1:   0 [1] 2  3
    at_start="zeros"     first item at r = 0:   .  [0] 1  2      mask False at the dot, padding 0 ("short" is the same)
    at_start="repeat"    first item at r = 0:   0' [0] 1  2      mask False, the first step again
    at_end="skip"        last item at r = 3:    2 [3] 4  5
    at_end="shorten"     also at r = 4, 5:      3 [4] 5     and   4 [5]          shown padded, mask False there
    at_end="pad"         also at r = 4, 5:      3 [4] 5  .  and   4 [5] .  .
    at_end="shift"       with period=4, for r = 4 that does not fit:  2 [3] 4  5

Windows show the final row of an episode, which has only some columns, but it is never a reference step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from shmreplay.base.checks import check_choice, check_int, wire_field
from shmreplay.columns.item_structure import ItemStructure, Selected, has_steps, item_output
from shmreplay.columns.signature import Signature
from shmreplay.errors import SignatureMismatch
from shmreplay.rules.priorities import PriorityRule, priority_from_wire, priority_to_wire, read_priority

AtStart: TypeAlias = Literal["skip", "short", "repeat", "zeros"]
AtEnd: TypeAlias = Literal["skip", "shorten", "pad", "shift"]
AT_START = ("skip", "short", "repeat", "zeros")
AT_END = ("skip", "shorten", "pad", "shift")
REACH_EPISODE, REACH_HISTORY, REACH_WHOLE_EPISODE, REACH_STRETCH = range(4)
FAR = 2**24

# One step (without a step axis), or steps a .. b - 1, counted from the reference step. The name of a column comes first
# if it is not that of the output.
Steps: TypeAlias = int | tuple[int, int] | tuple[str, int] | tuple[str, int, int]


@dataclass(frozen=True)
class Window:
    """Steps around each reference step of an episode, as one item.

    Args:
        columns: output name to steps, counted from the reference step: an int is one step without a step axis, `(a, b)`
            steps a .. b - 1, `("column", a, b)` or `("column", a)` those of another column. If the end of the window
            is shortened, a range of another column that reaches the end moves with it: so the next observation of an
            n-step item is always the one after its last step. A column that is per item has one value, whatever
            its steps.
        at_start: what to do about steps before the episode: "skip" makes no item, "short" and "zeros" pad with 0,
            "repeat" with the first step. See the drawing above.
        at_end: what to do about steps after the episode: "skip", "shorten", "pad", "shift". See the drawing above.
        period: steps from one reference step to the next, beginning at the first step of the episode.
        burn_in: steps added before every range that begins at the reference step.
        across_episodes: everything until the history is cleared counts as one episode: `end_episode` with
            `clear_history=False` ends none, and after a terminated or truncated step no `end_episode` is needed.
        priority: None (the call's), a float, the name of a scalar column, or `td_priority(...)`.
        table: name of the table that gets the items; None: the writer's own.
        rest: steps of every outermost column of the signature that `columns` does not name; None leaves them out.
        optional: outputs that are left out if the signature lacks their column.
        is_whole_episode: the item is the whole episode, whatever its steps; it is made when the episode ends.
        is_unroll: each item gets its own chunk, see `fills_chunks`.

    Raises:
        TypeError, ValueError: an argument is malformed; the text names the output.
    """

    # Makes a Table with a window hashable.
    def __hash__(self) -> int:
        return hash((tuple(self.columns), self.at_start, self.at_end, self.period, self.burn_in))

    columns: Mapping[str, Steps]
    at_start: AtStart = "skip"
    at_end: AtEnd = "skip"
    period: int = 1
    burn_in: int = 0
    across_episodes: bool = False
    priority: PriorityRule = None
    table: str | None = None
    rest: Steps | None = None
    optional: frozenset[str] = frozenset()
    is_whole_episode: bool = False
    is_unroll: bool = field(default=False, compare=False)  # how items are stored, not what they are

    def __post_init__(self) -> None:
        check_choice("window", "at_start", self.at_start, AT_START)
        check_choice("window", "at_end", self.at_end, AT_END)
        object.__setattr__(self, "period", check_int("window", "period", self.period, 1, FAR))
        object.__setattr__(self, "burn_in", check_int("window", "burn_in", self.burn_in, 0, FAR))
        if not isinstance(self.columns, Mapping) or not (self.columns or self.rest is not None):
            raise ValueError("window: columns is empty; expected at least one output, such as {'observation': (0, 4)}")
        object.__setattr__(self, "columns", {name: _check_steps(name, steps) for name, steps in self.columns.items()})
        if self.rest is not None:
            object.__setattr__(self, "rest", _check_steps("rest", self.rest))
        if not (self.table is None or isinstance(self.table, str)):
            raise TypeError(f"window: table is {self.table!r}; expected a table's name, or None")

    def parts(self, signature: Signature) -> list[_Part]:
        """The outputs for a signature, in its order; outputs with other names come last."""
        rest = {} if self.rest is None else dict.fromkeys(signature.top_names(), self.rest)
        if self.rest is not None and not rest:
            raise SignatureMismatch(
                f"table {signature.table_name!r}: windows name columns; its signature is no dict or named tuple"
            )
        parts = [_read_part(name, steps, self.burn_in) for name, steps in {**rest, **self.columns}.items()]
        return [part for part in parts if part.name not in self.optional or signature.part(part.source) is not None]

    def structure(self, signature: Signature) -> ItemStructure:
        """The structure of its items. Raises SignatureMismatch for an unknown column."""
        return ItemStructure.of(signature, [Selected(part.name, part.source) for part in self.parts(signature)])

    def native(self, signature: Signature, table: int, where: str) -> dict[str, Any]:
        """The rule as the core takes it."""
        parts = self.parts(signature)
        structure = self.structure(signature)
        lo, hi = self._span(signature)
        outputs = [
            item_output(column)
            if signature.leaves[column].spec.is_per_item
            else (column, part.is_squeezed, part.is_renamed and part.end == hi, [(part.begin, part.end, 1)])
            for part, columns in zip(parts, structure.columns, strict=True)
            for column in columns
        ]
        return {
            "table": table,
            "lo": lo,
            "hi": hi,
            "period": self.period,
            "at_start": AT_START.index(self.at_start),
            "at_end": AT_END.index(self.at_end),
            "reach": self._reach(),
            "is_strict": True,
            "is_unroll": self.is_unroll,
            "names": structure.names,
            "outputs": outputs,
            "conditions": [],
            "priority": (*read_priority(self.priority, signature, where), self.burn_in > 0),
        }

    def fills_chunks(self, signature: Signature) -> bool:
        """Whether a writer begins a chunk with each item, if chunks have as many steps as an item.

        The last step of an item, which is the first of the next item, is then stored twice. So this is only possible if
        every column has a fixed size and is not mutable, or is per item.
        """
        if not self.is_unroll or self.burn_in > 0:
            return False
        return all(leaf.flags == 0 or leaf.spec.is_per_item for leaf in signature.leaves)

    def _reach(self) -> int:
        if self.is_whole_episode:
            return REACH_WHOLE_EPISODE
        return REACH_STRETCH if self.across_episodes else REACH_EPISODE

    def num_steps(self, signature: Signature) -> int:
        """Steps that a writer must keep for it, the newest included; 1 for whole episodes, whose length is unknown."""
        if self.is_whole_episode:
            return 1
        lo, hi = self._span(signature)
        return max(hi, 1) - min(0, lo)

    def num_later_steps(self, signature: Signature) -> int:
        """Steps after the reference step that must be there before the item is made; those of a whole episode are 0."""
        return 0 if self.is_whole_episode else max(self._span(signature)[1], 1) - 1

    def _span(self, signature: Signature) -> tuple[int, int]:
        """The first step that it shows, and the one after the last, counted from the reference step."""
        parts, columns = self.parts(signature), self.structure(signature).columns
        shown = [part for part, of in zip(parts, columns, strict=True) if has_steps(signature, of)]
        if not shown:
            raise SignatureMismatch(
                f"table {signature.table_name!r}: window shows only columns that are per item; expected one of steps"
            )
        return min(part.begin for part in shown), max(part.end for part in shown)

    def to_wire(self) -> dict[str, object]:
        """Returns a dict of plain values for msgpack; `from_wire` is its inverse."""
        plain: dict[str, object] = {name: getattr(self, name) for name in _PLAIN}
        columns = [[name, _steps_to_wire(steps)] for name, steps in self.columns.items()]
        rest = None if self.rest is None else _steps_to_wire(self.rest)
        priority = priority_to_wire(self.priority)
        unroll = {"is_unroll": True} if self.is_unroll else {}  # older specs lack it
        return {
            **plain,
            **unroll,
            "columns": columns,
            "rest": rest,
            "optional": sorted(self.optional),
            "priority": priority,
        }

    @classmethod
    def from_wire(cls, wire: object) -> Window:
        """Remakes a window from what `to_wire` returned.

        Raises:
            TypeError, ValueError: malformed, or not a window that `Window` would take.
        """
        plain: dict[str, Any] = {name: wire_field("window", wire, name) for name in _PLAIN}
        columns, rest, optional = (wire_field("window", wire, name) for name in ("columns", "rest", "optional"))
        if not (isinstance(columns, list) and isinstance(optional, list)):
            raise ValueError(f"window: malformed {wire!r:.100}")
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in columns):
            raise ValueError(f"window: malformed columns {columns!r:.100}")
        return cls(
            {name: _steps_from_wire(steps) for name, steps in columns},
            **plain,
            priority=priority_from_wire(wire_field("window", wire, "priority")),
            rest=_steps_from_wire(rest),
            optional=frozenset(str(name) for name in optional),
            is_unroll="is_unroll" in cast(dict[object, object], wire),
        )


# Fields that are sent as they are.
_PLAIN = ("at_start", "at_end", "period", "burn_in", "across_episodes", "table", "is_whole_episode")


def _steps_to_wire(steps: Steps) -> object:
    return list(steps) if isinstance(steps, tuple) else steps


def _steps_from_wire(wire: Any) -> Any:
    """Unchecked; `Window` checks it."""
    return tuple(wire) if isinstance(wire, list) else wire


@dataclass(frozen=True)
class _Part:
    name: str
    source: str
    begin: int
    end: int
    is_squeezed: bool
    is_renamed: bool


def _check_steps(name: object, steps: object) -> Steps:
    if not isinstance(name, str) or not name:
        raise TypeError(f"window: the output {name!r} has no name; expected a str")
    where = f"window: output {name!r}"
    match steps:
        case bool():
            pass
        case int(step):
            return step
        case (str(column), int(step)):
            return (column, step)
        case (int(begin), int(end)):
            return _check_range(begin, end, where)
        case (str(column), int(begin), int(end)):
            return (column, *_check_range(begin, end, where))
    raise TypeError(f"{where}: {steps!r}; expected an int, (first, end), ('column', step) or ('column', first, end)")


def _check_range(begin: int, end: int, where: str) -> tuple[int, int]:
    if begin >= end:
        raise ValueError(f"{where}: steps {begin} to {end} are an empty range; expected the first below the end")
    if max(abs(begin), abs(end)) > FAR:
        raise ValueError(f"{where}: steps {begin} to {end} are too far away; expected at most {FAR} steps")
    return (begin, end)


def _read_part(name: str, steps: Steps, burn_in: int) -> _Part:
    source, *numbers = steps if isinstance(steps, tuple) and isinstance(steps[0], str) else (name, *_numbers(steps))
    begin = int(numbers[0])
    if len(numbers) == 1:
        return _Part(name, str(source), begin, begin + 1, True, source != name)
    begin = begin - burn_in if begin == 0 else begin
    return _Part(name, str(source), begin, int(numbers[1]), False, source != name)


def _numbers(steps: Steps) -> tuple[Any, ...]:
    return steps if isinstance(steps, tuple) else (steps,)


SUMMED = ("reward", "terminated", "truncated")


def Transition(next: tuple[str, ...] = ("observation",), **options: Any) -> Window:  # noqa: N802  (as a class)
    """One step, every column under its own name, and `next_observation`: `[B, ...]` each.

    The next step of an episode's last transition is the final row. Without one it is missing (mask False), which is
    allowed only if the episode terminated.

    Args:
        next: columns whose next step is shown, as `next_<name>`.
        **options: `priority`, `table` and `across_episodes` of `Window`.
    """
    return NStep(1, next=next, **options)


def NStep(  # noqa: N802
    n: int,
    stack: Mapping[str, int] | None = None,
    next: tuple[str, ...] = ("observation",),
    summed: tuple[str, ...] = SUMMED,
    at_start: AtStart = "repeat",
    **options: Any,
) -> Window:
    """A step, the rewards of n steps from it on, and the step after those.

    Near an episode's end an item has fewer steps, and its next step is nearer.

    Args:
        n: number of steps, >= 1. `NStep(1)` is `Transition()`.
        stack: frames of a column: `{"observation": 4}` gives `[B, 4, ...]`, also for the next step.
        next: columns whose step n later is shown, as `next_<name>`.
        summed: columns shown for all n steps, `[B, n]`, if the signature has them: see `n_step_targets`.
        at_start: what a stack shows before the episode: "repeat" or "zeros".
        **options: `priority`, `table` and `across_episodes` of `Window`.
    """
    n = check_int("NStep", "n", n, 1, FAR)
    if not (stack is None or isinstance(stack, Mapping)):
        raise TypeError(f"NStep: stack is {stack!r}; expected frames by column, such as {{'observation': 4}}")
    stack = dict(stack or {})
    for name, frames in stack.items():
        check_int(f"NStep, stack of {name!r}", "frames", frames, 1, FAR)
    columns: dict[str, Steps] = {name: (1 - frames, 1) for name, frames in stack.items()}
    if n > 1:
        columns.update(dict.fromkeys(summed, (0, n)))
    for name in next:
        columns[f"next_{name}"] = (name, n - stack[name] + 1, n + 1) if name in stack else (name, n)
    fixed: dict[str, Any] = {"at_end": "shorten", "rest": 0, "optional": frozenset(summed)}
    return _window("NStep", options, columns, at_start=at_start, **fixed)


def Sequence(  # noqa: N802
    length: int,
    period: int = 1,
    burn_in: int = 0,
    at_start: AtStart = "short",
    at_end: AtEnd = "pad",
    **options: Any,
) -> Window:
    """`length` steps of every column, `[B, burn_in + length, ...]`, beginning every `period` steps.

    Args:
        length: training steps.
        period: from one sequence's first training step to the next one's.
        burn_in: steps before them, to warm up a recurrent state; missing ones are masked.
        at_start, at_end: as of `Window`; by default no step is dropped, and missing ones are masked.
        **options: `priority`, `table` and `across_episodes` of `Window`.
    """
    length = check_int("Sequence", "length", length, 1, FAR)
    ends: dict[str, Any] = {"at_start": at_start, "at_end": at_end}
    return _window("Sequence", options, {}, **ends, period=period, burn_in=burn_in, rest=(0, length))


def Episode(**options: Any) -> Window:  # noqa: N802
    """The whole episode as one item, made when it ends. The writer's `history` must be long enough."""
    return _window("Episode", options, {}, rest=(0, 1), is_whole_episode=True)


def Unroll(T: int, bootstrap: tuple[str, ...] = ("observation",), **options: Any) -> Window:  # noqa: N802, N803
    """T steps of every column, and T + 1 of those in `bootstrap`. Each unroll begins where the previous one ended.

    The last one of an episode is padded. Each unroll is stored in a chunk of its own (see docs/windows.md), with three
    exceptions: a table with other `chunk_steps` than T + 1 (T without `bootstrap`), columns that are compressed,
    mutable or of any size, and an unroll with a burn-in.

    Args:
        T: number of steps, >= 1.
        bootstrap: columns shown for one more step.
        **options: `priority`, `table` and `across_episodes` of `Window`.
    """
    T = check_int("Unroll", "T", T, 1, FAR)  # noqa: N806
    columns: dict[str, Steps] = dict.fromkeys(bootstrap, (0, T + 1))
    fixed: dict[str, Any] = {"at_start": "skip", "at_end": "pad", "is_unroll": True}
    return _window("Unroll", options, columns, **fixed, period=T, rest=(0, T))


def _window(maker: str, options: Mapping[str, Any], columns: Mapping[str, Steps], **fixed: Any) -> Window:
    """Makes a window with fixed arguments and options. Raises TypeError for an unknown or fixed option."""
    free = [name for name in _OPTIONS if name not in fixed]
    for name in options:
        if name not in free:
            raise TypeError(
                f"{maker}: {name}= is not an option; expected one of {', '.join(free)}, or make a sr.Window, which "
                "takes them all"
            )
    return Window(columns, **fixed, **options)


_OPTIONS = ("period", "burn_in", "across_episodes", "priority", "table")
