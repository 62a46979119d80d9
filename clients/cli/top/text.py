"""The parts of a line on the screen: spans of text, short numbers, bars. One character takes one cell."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from shmreplay.clients.cli.terminal.printing import can_show

Span = tuple[str, str]  # text and style: "", "bold", "dim", "good", "warn", "bad", "bar", "title", "selected"
Line = list[Span]

_UNITS = ("k", "M", "G", "T", "P")


@dataclass(frozen=True)
class Marks:
    """The characters that bars are drawn with."""

    full: str = "█"
    empty: str = "░"
    left: str = "├"
    line: str = "─"
    right: str = "┤"
    point: str = "●"
    up: str = "▲"
    down: str = "▼"
    levels: str = "▁▂▃▄▅▆▇█"  # of a sparkline, from 0 to the largest


ASCII_MARKS = Marks("#", ".", "|", "-", "|", "o", "^", "v", "_.-:=+*#")


def marks_for(encoding: str | None) -> Marks:
    """The marks that a terminal of this encoding can show."""
    marks = Marks()
    return marks if can_show("".join(vars(marks).values()), encoding) else ASCII_MARKS


def clip(text: str, width: int, *, to_right: bool = False) -> str:
    """The text in exactly `width` cells; a text that is too long ends with `~`."""
    if len(text) > width:
        return (text[: width - 1] + "~")[:width]
    return text.rjust(width) if to_right else text.ljust(width)


def clip_line(line: Line, width: int) -> Line:
    """The line in exactly `width` cells."""
    found: Line = []
    left = width
    for text, style in line:
        if left <= 0:
            break
        found.append((text[:left], style))
        left -= len(text)
    if left > 0:
        found.append((" " * left, ""))
    return found


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines of at most `width` cells."""
    return textwrap.wrap(text, max(width, len(indent) + 10), subsequent_indent=indent) or [""]


def short(number: float | None) -> str:
    """A number in at most five cells: `0.25`, `9876`, `12.3k`, `1.23M`; `-` for none."""
    if number is None:
        return "-"
    if math.isinf(number):
        return "-inf" if number < 0 else "inf"
    sign, size = ("-", -number) if number < 0 else ("", number)
    if size < 1000 and size == int(size):
        return f"{sign}{size:.0f}"
    if size < 9999.5:
        return f"{sign}{size:.0f}" if size >= 999.5 else f"{sign}{_three_digits(size)}"
    for unit in _UNITS:
        size /= 1000
        if size < 999.5:
            return f"{sign}{_three_digits(size)}{unit}"
    return f"{sign}{size:.0e}"


def _three_digits(size: float) -> str:
    decimals = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{size:.{decimals}f}"


def duration(seconds: float | None) -> str:
    """`12s`, `3m`, `5h`, `2d`; `-` for none."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def bar(fraction: float, width: int, marks: Marks) -> str:
    """A bar from left to right: full only from 1 on, empty only at 0."""
    if fraction >= 1:
        filled = width
    elif fraction <= 0:
        filled = 0
    else:
        filled = min(max(round(fraction * width), 1), width - 1)
    return marks.full * filled + marks.empty * (width - filled)


def sparkline(values: Sequence[float | None], width: int, marks: Marks) -> str:
    """The last `width` values as columns, from 0 to the largest of them; blank where there is none."""
    last = values[-width:] if width > 0 else ()
    top = max((value for value in last if value is not None), default=0.0)
    steps = len(marks.levels) - 1
    drawn = [" " if value is None else marks.levels[round(steps * value / top) if top > 0 else 0] for value in last]
    return "".join(drawn).rjust(width)


def scale(low: float, high: float, value: float, width: int, marks: Marks) -> str:
    """Shows where a value lies between two bounds; blank if a bound is infinite."""
    if width < 3 or math.isinf(low) or math.isinf(high):
        return " " * width
    inner = width - 2
    place = 0.5 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0)
    at = round(place * (inner - 1))
    return marks.left + marks.line * at + marks.point + marks.line * (inner - 1 - at) + marks.right
