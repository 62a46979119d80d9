"""What commands print: numbers with their nouns, tables, progress, and names that other processes chose."""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Sequence

PROGRESS_EVERY_S = 1.0


def counted(number: int, one: str, more: str | None = None) -> str:
    """`1 writer`, `2 writers`; `more` is the plural where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def format_rows(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in plain text: the first column is aligned left, the others, which are numbers, right."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def show_progress(text: str) -> None:
    """Prints to stderr how far a request is."""
    print(text, file=sys.stderr)


class Progress:
    """Prints once a second how much is done. Work that takes less than a second prints nothing."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._printed = time.monotonic()

    def tell(self, done: int) -> None:
        now = time.monotonic()
        if now - self._printed >= PROGRESS_EVERY_S:
            self._printed = now
            show_progress(f"{done} of {self._total} {self._what}")


def plain(text: str) -> str:
    """The text with `?` for each character that moves the cursor or does not take exactly one cell.

    Processes choose their names, so these may contain anything.
    """
    return "".join(letter if _takes_one_cell(letter) else "?" for letter in text)


def can_show(text: str, encoding: str | None) -> bool:
    """Whether a terminal of this encoding can show all of the characters."""
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _takes_one_cell(letter: str) -> bool:
    if " " <= letter <= "~":
        return True
    return letter.isprintable() and unicodedata.east_asian_width(letter) not in "WF" and not _combines(letter)


def _combines(letter: str) -> bool:
    return unicodedata.category(letter) in ("Mn", "Me", "Cf")
