"""Checks of single arguments, shared so that all errors have the same wording."""

from __future__ import annotations

import difflib
import math
import operator
import os
from collections.abc import Iterable, Sequence

import numpy as np

from shmreplay.errors import TableNotFound

INT32_MAX = 2**31 - 1


def check_int(where: str, name: str, value: object, low: int, high: int = INT32_MAX) -> int:
    """Returns `value` as an int of `low..high`.

    Raises:
        TypeError: it is not an integer (a bool is not one).
        ValueError: it is out of range.
    """
    expected = f"expected an integer in {low}..{high}"
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{where}: {name} is {value!r}; {expected}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # checked here
    except TypeError:
        raise TypeError(f"{where}: {name} is {value!r}; {expected}") from None
    if not low <= number <= high:
        raise ValueError(f"{where}: {name} is {number}; {expected}")
    return number


def check_float(where: str, name: str, value: object) -> float:
    """Returns `value`, a real number that may be infinite but not NaN, as a float.

    Raises:
        TypeError: it is not a number (a bool or a str is not one).
        ValueError: it is NaN.
    """
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise TypeError(f"{where}: {name} is {value!r}; expected a number")
    try:
        number = float(value)  # type: ignore[arg-type]  # checked here
    except (TypeError, ValueError):
        raise TypeError(f"{where}: {name} is {value!r}; expected a number") from None
    except OverflowError:  # an int that no float holds
        raise ValueError(f"{where}: {name} has more digits than a float; expected a number") from None
    if math.isnan(number):
        raise ValueError(f"{where}: {name} is nan; expected a number")
    return number


def check_path(where: str, name: str, value: object) -> str:
    """Returns a path as a str.

    Raises:
        TypeError: it is no str, bytes or `os.PathLike`.
    """
    try:
        return os.fsdecode(value)  # type: ignore[arg-type]  # checked here
    except TypeError:
        raise TypeError(f"{where}: {name} is {value!r}; expected the path of a file or a directory") from None


def check_choice(where: str, name: str, value: object, choices: Sequence[object]) -> None:
    """Raises ValueError unless `value` is one of `choices`."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{where}: {name} is {value!r}; expected one of {listed}")


def known_instead(name: str, known: Sequence[str], owner: str) -> str:
    """Text for an unknown name: a similar known one, otherwise all names that `owner` has."""
    meant = _meant(name, known)
    return f"did you mean {meant!r}?" if meant is not None else f"{owner} has {', '.join(known) or 'no keys'}"


def no_such_table(name: str, known: Iterable[str]) -> TableNotFound:
    """The error for an unknown table. It lists the tables there are, and says which of them may be meant."""
    names = sorted(known)
    meant = _meant(name, names)
    question = "" if meant is None else f" (did you mean {meant!r}?)"
    return TableNotFound(f"there is no table {name!r}; there are: {', '.join(names) or 'none'}{question}")


def _meant(name: str, known: Sequence[str]) -> str | None:
    """The known name that is most like this one, if any is."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.7)), None)


def wire_field(where: str, wire: object, name: str) -> object:
    """Returns field `name` of a dict that was received over the control socket or read from a segment.

    Raises:
        ValueError: it is not a dict, or lacks the field.
    """
    if not isinstance(wire, dict) or name not in wire:
        raise ValueError(f"{where}: malformed, expected a map with {name!r}, got {wire!r:.100}")
    return wire[name]
