"""Windows, patterns and the stream that they look at, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import shmreplay as sr
from tests.clients.writers.oracle import Plain, Shown


@dataclass(frozen=True)
class Look:
    """A step as the conditions of a pattern see it."""

    number: int
    step_index: int
    is_end: bool


@dataclass(frozen=True)
class PlainPattern:
    """`select[output]` is a column and steps counted from the newest, which is 0."""

    select: Mapping[str, tuple[str, Sequence[int]]]
    holds: Callable[[Look], bool] = lambda look: True
    asks_end: bool = False


PlainRule = Plain | PlainPattern


@dataclass(frozen=True)
class Rule:
    """One rule twice: as the table gets it, and plainly."""

    make: Callable[[str], sr.Window | sr.Pattern]  # for a table's name
    plain: PlainRule


def window(ranges: Mapping[str, tuple[int, int]], at_start: str, at_end: str, period: int) -> Rule:
    """Columns under their own names."""
    plain = Plain(ranges, (), at_start, at_end, period)
    return Rule(lambda table: sr.Window(ranges, at_start, at_end, period, table=table), plain)  # type: ignore[arg-type]


def n_step(n: int) -> Rule:
    """The observation, n actions, and the observation n steps on."""
    ranges = {"observation": (0, 1), "action": (0, n), "next_observation": (n, n + 1)}
    plain = Plain(ranges, ("next_observation",), "skip", "shorten", 1)
    return Rule(lambda table: sr.NStep(n, summed=("action",), table=table), plain)


def pattern(select: Mapping[str, Any], conditions: Sequence[Any], plain: PlainPattern) -> Rule:
    """A pattern."""
    return Rule(lambda table: sr.Pattern(select, table=table, conditions=conditions), plain)


PATTERNS = [
    pattern(
        {"pair": ("observation", slice(-2, None)), "act": ("action", -2)},
        [],
        PlainPattern({"pair": ("observation", (-1, 0)), "act": ("action", (-1,))}),
    ),
    pattern(
        {"last": ("observation", -1)},
        [sr.when.step_index % 3 == 1],
        PlainPattern({"last": ("observation", (0,))}, lambda look: look.step_index % 3 == 1),
    ),
    pattern(
        {"stack": ("observation", slice(-4, None, 2))},
        [sr.when.end_of_episode],
        PlainPattern({"stack": ("observation", (-3, -1))}, lambda look: look.is_end, asks_end=True),
    ),
    pattern(
        {"acts": ("action", slice(-3, -1)), "now": ("observation", -1)},
        [sr.when.step_index >= 2, sr.when.data["observation"] % 5 != 2],
        PlainPattern(
            {"acts": ("action", (-2, -1)), "now": ("observation", (0,))},
            lambda look: look.step_index >= 2 and look.number % 5 != 2,
        ),
    ),
]


@dataclass(frozen=True)
class Made:
    """An item as it must be: `shown[output]` are numbers of steps, None where one is missing."""

    shown: Shown
    episode: object


@dataclass
class PlainStream:
    """What a writer was given since its history was cleared, and the items that its rules make of it.

    The value of every column of a step is the step's number, from 1. `next_*` only look: `take` and `end` change it.
    """

    name: int
    rules: Sequence[PlainRule]
    stretch: list[tuple[int, bool]] = field(default_factory=list)  # number of the step, and whether it is whole
    episode: int = 0
    length: int = 0  # whole steps of the episode

    def next_step(self, number: int) -> list[list[Made]]:
        """By rule, the items that are made when this step is appended."""
        rows = [*self.stretch, (number, True)]
        look = Look(number, self.length, False)
        return [
            self._of_window(rule, rows, self.length + 1)
            if isinstance(rule, Plain)
            else self._of_pattern(rule, rows, look)
            for rule in self.rules
        ]

    def next_end(self, final: int | None) -> list[list[Made]]:
        """By rule, the items that are made when the episode ends with this final step."""
        rows = self.stretch if final is None else [*self.stretch, (final, False)]
        index = self.length - 1 if final is None else self.length
        look = Look(rows[-1][0], index, True)
        made = []
        for rule in self.rules:
            if isinstance(rule, Plain):
                done = len(_whole(rule).items(self.length, has_final=False))
                made.append(self._shown(rule.items(self.length, has_final=final is not None)[done:], rows))
            else:
                made.append(self._of_pattern(rule, rows, look) if final is not None or rule.asks_end else [])
        return made

    def take(self, number: int) -> None:
        """The step was appended."""
        self.stretch.append((number, True))
        self.length += 1

    def end(self, final: int | None, *, clear: bool) -> None:
        """The episode has ended."""
        if final is not None:
            self.stretch.append((final, False))
        if clear:
            self.stretch = []
        self.episode += 1
        self.length = 0

    def _of_window(self, rule: Plain, rows: list[tuple[int, bool]], length: int) -> list[Made]:
        """The item, if any, whose last step is the newest."""
        before = len(_whole(rule).items(length - 1, has_final=False))
        return self._shown(_whole(rule).items(length, has_final=False)[before:], rows)

    def _shown(self, items: list[Shown], rows: list[tuple[int, bool]]) -> list[Made]:
        first = len(self.stretch) - self.length
        return [
            Made(
                {
                    name: [None if step is None else rows[first + step][0] for step in steps]
                    for name, steps in item.items()
                },
                (self.name, self.episode),
            )
            for item in items
        ]

    def _of_pattern(self, rule: PlainPattern, rows: list[tuple[int, bool]], look: Look) -> list[Made]:
        if not rule.holds(look):
            return []
        shown: Shown = {}
        for name, (column, steps) in rule.select.items():
            places = [len(rows) - 1 + step for step in steps]
            if min(places) < 0 or not all(rows[place][1] or column == "observation" for place in places):
                return []
            shown[name] = [rows[place][0] for place in places]
        return [Made(shown, (self.name, self.episode))]


def _whole(rule: Plain) -> Plain:
    """The rule as far as it needs no end: items whose steps are all there."""
    return Plain(rule.columns, (), rule.at_start, "skip", rule.period)
