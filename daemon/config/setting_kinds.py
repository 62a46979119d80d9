"""SettingKind: what a setting may be, and how it is read from TOML, a variable or a flag."""

from __future__ import annotations

import grp
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from shmreplay.daemon.loop.endpoint import Endpoint
from shmreplay.protocol import socket_path
from shmreplay.segments.segment import check_name

_UNITS = {"": 1, **{f"{letter}iB": 1024 ** (i + 1) for i, letter in enumerate("KMGT")}}
_SIZE = re.compile(r"([0-9]+)\s*([KMGT]iB|)")
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):([0-9]{1,5})")
_SWITCH_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Group:
    """A group of this machine."""

    id: int
    name: str


@dataclass(frozen=True)
class SettingKind:
    """What values a setting takes.

    Attributes:
        of_value: converts a TOML value into the setting. Raises ValueError with the value and what was expected.
        of_text: converts the text of a variable or a flag into the TOML value; returns the text if it cannot.
    """

    of_value: Callable[[object], Any]
    of_text: Callable[[str], object] = str


def refuse(value: object, expected: str) -> NoReturn:
    """Raises ValueError with the value of a setting and what was expected."""
    raise ValueError(f"is {value!r:.100}; expected {expected}")


def choice(of: Sequence[str]) -> SettingKind:
    """A kind whose value is one of these words."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in of:
            return value
        refuse(value, f"one of {', '.join(map(repr, of))}")

    return SettingKind(check)


def _check_switch(value: object) -> bool:
    return value if isinstance(value, bool) else refuse(value, "true or false")


def _check_count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    refuse(value, "a whole number of at least 1")


def _check_seconds(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    refuse(value, "a number of seconds above 0")


def _check_bytes(value: object) -> int:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    found = int(match[1]) * _UNITS[match[2]] if match is not None else 0
    return found if found > 0 else refuse(value, "a number of bytes above 0, or a text such as '64 GiB'")


def _check_path(value: object) -> str:
    if isinstance(value, str) and os.path.isabs(value) and "\0" not in value:
        return value
    refuse(value, "an absolute path")


def _check_socket(value: object) -> str:
    if not isinstance(value, str) or not os.path.isabs(value.removeprefix("unix:")):
        refuse(value, "the absolute path of a socket, such as '/run/shmreplay/default.sock'")
    return _checked_by(value, lambda: socket_path(value))


def _check_endpoint(value: object) -> Endpoint:
    if isinstance(value, str) and value.startswith("/"):
        return Endpoint(_check_socket(value))
    match = _LOOPBACK.fullmatch(value) if isinstance(value, str) else None
    if match is None or (port := int(match[2])) > 65535:
        refuse(value, "the absolute path of a socket, or a port of this machine, such as '127.0.0.1:9470'")
    return Endpoint(None, "127.0.0.1" if match[1] == "localhost" else match[1].strip("[]"), port)


def _check_instance(value: object) -> str:
    return _checked_by(value, lambda: check_name("instance", value))  # type: ignore[arg-type]  # check_name refuses other types


def _check_group(value: object) -> Group:
    if not isinstance(value, str) or not value:
        refuse(value, "the name of a group")
    try:
        entry = grp.getgrgid(int(value)) if value.isdecimal() else grp.getgrnam(value)
    except (KeyError, OverflowError):
        raise ValueError(f"is {value!r}; no such group on this machine (see `getent group`)") from None
    return Group(entry.gr_gid, entry.gr_name)


def _checked_by(value: object, check: Callable[[], str]) -> str:
    try:
        return check()
    except ValueError as error:
        raise ValueError(f"is {value!r:.100}: {error}") from error


def _absolute(text: str) -> str:
    """A relative path on the command line is relative to the current directory."""
    return os.path.abspath(text) if text else text


def _or_itself(make: Callable[[str], object]) -> Callable[[str], object]:
    """Returns `make`, but it returns the text where it would raise: the check of the value then explains it."""

    def read(text: str) -> object:
        try:
            return make(text)
        except ValueError:
            return text

    return read


SWITCH = SettingKind(_check_switch, lambda text: _SWITCH_WORDS.get(text.lower(), text))
COUNT = SettingKind(_check_count, _or_itself(int))
SECONDS = SettingKind(_check_seconds, _or_itself(float))
BYTES = SettingKind(_check_bytes)
PATH = SettingKind(_check_path, _absolute)
SOCKET = SettingKind(_check_socket, _or_itself(socket_path))
ENDPOINT = SettingKind(_check_endpoint)
INSTANCE = SettingKind(_check_instance)
GROUP = SettingKind(_check_group)
