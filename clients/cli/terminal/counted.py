"""Numbers with what they count."""

from __future__ import annotations


def counted(number: int, one: str, more: str | None = None) -> str:
    """`1 writer`, `2 writers`; `more`: the word for several, where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"
