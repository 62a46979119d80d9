"""What a window shows, in plain Python: a list of values for each output, None where a step is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Shown = dict[str, list[int | None]]


@dataclass(frozen=True)
class Plain:
    """A window by its ranges, `columns[output] = (first, end)`; `moving` outputs show the last steps of a cut one."""

    columns: Mapping[str, tuple[int, int]]
    moving: Sequence[str]
    at_start: str
    at_end: str
    period: int

    @property
    def low(self) -> int:
        return min(first for first, _ in self.columns.values())

    @property
    def high(self) -> int:
        return max(end for _, end in self.columns.values())

    def items(self, num_steps: int, *, has_final: bool) -> list[Shown]:
        """The items of an episode of this many steps, in the order of their reference steps."""
        rows = num_steps + (1 if has_final or self.moving else 0)
        high = self._whole_high() if has_final and self.at_end in ("skip", "shift") else self.high
        made: list[Shown] = []
        references: list[int] = []
        for reference in range(0, num_steps, self.period):
            at = reference
            if reference + high > rows:
                if self.at_end == "skip":
                    continue
                if self.at_end == "shift":
                    at = max(rows - high, 0)
                    if at in references:
                        continue
            if at + self.low < 0 and self.at_start == "skip":
                continue
            references.append(at)
            made.append(self._show(at, num_steps, rows, has_final=has_final))
        return made

    def _whole_high(self) -> int:
        """The end of a window that shows nothing of a final step that is not there: it has only observations."""
        lacking = [end + 1 for name, (_, end) in self.columns.items() if not name.endswith("observation")]
        return max(self.high, *lacking)

    def _show(self, reference: int, num_steps: int, rows: int, *, has_final: bool) -> Shown:
        end = reference + self.high
        cut = max(end - rows, 0) if self.at_end == "shorten" else 0
        shown: Shown = {}
        for name, (first, stop) in self.columns.items():
            moved = -cut if name in self.moving else 0
            last_row = num_steps - 1 + (1 if has_final and name.endswith("observation") else 0)
            steps = range(reference + first + moved, reference + stop + moved)
            shown[name] = [step if 0 <= step <= last_row else None for step in steps]
        return shown


def read(batch: Any, i: int, first_step: int) -> Shown:
    """Item i of a batch whose every value is the number of its step, the episode's first having `first_step`."""
    shown: Shown = {}
    for name, values in batch.data.items():
        rows, real = values[i], batch.mask[name][i]
        rows, real = (rows, real) if real.ndim else (rows[None], real[None])
        shown[name] = [int(row) - first_step if is_real else None for row, is_real in zip(rows, real, strict=True)]
    return shown
