"""Text of others, such as the names that processes give themselves, made fit for a terminal."""

from __future__ import annotations

import unicodedata


def plain(text: str) -> str:
    """The text with `?` for what moves the cursor or takes no cell or two: a process names itself as it likes."""
    return "".join(letter if _takes_one_cell(letter) else "?" for letter in text)


def can_show(text: str, encoding: str | None) -> bool:
    """Whether a terminal of the encoding has all of the characters."""
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
