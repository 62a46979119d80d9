"""Setting: one thing that a daemon can be told, in a file, in the environment or by a flag, and what it may be."""

from __future__ import annotations

import grp
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

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
class Endpoint:
    """Where something listens: at a path, or at a port of this machine that no other one reaches. Port 0 is any."""

    path: str | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path is not None:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Kind:
    """What a setting may be.

    Attributes:
        of_value: makes the setting of a value as TOML has it. Raises ValueError that says what it is, and what was
            expected.
        of_text: the value that TOML would have for the text of a variable or a flag; the text itself where it is none.
    """

    of_value: Callable[[object], Any]
    of_text: Callable[[str], object] = str


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        key: its section and name in the file.
        flags: the first one names it on the command line.
        default: what it is where nobody says anything, of the kind that `kind` makes.
        reloads: whether a reload changes it while tables are in use.
        variable: in the environment; "" stands for one made of the key.
        metavar: what the flag's help calls its value; "" for one that has none, being on or off.
    """

    key: str
    kind: Kind
    flags: tuple[str, ...]
    help: str
    default: Any = None
    metavar: str = ""
    reloads: bool = False
    variable: str = ""

    def __post_init__(self) -> None:
        made = "SHMREPLAYD_" + self.key.removeprefix("daemon.").replace(".", "_").upper()
        object.__setattr__(self, "variable", self.variable or made)

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def is_switch(self) -> bool:
        """Whether its flag takes no value."""
        return not self.metavar


@dataclass(frozen=True)
class Given:
    """What a setting was told to be, and where: `/etc/x.toml:3: log.level`, `$SHMREPLAYD_LOG_LEVEL`, `--log-level`."""

    value: Any
    where: str = "default"

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, Group):
            return self.value.name
        return "unset" if self.value is None else str(self.value)


def refuse(value: object, expected: str) -> NoReturn:
    """Raises the ValueError that says what a setting is, and what was expected."""
    raise ValueError(f"is {value!r:.100}; expected {expected}")


def choice(of: Sequence[str]) -> Kind:
    """One of some words."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in of:
            return value
        refuse(value, f"one of {', '.join(map(repr, of))}")

    return Kind(check)


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
    return _said_by(value, lambda: socket_path(value))


def _check_endpoint(value: object) -> Endpoint:
    if isinstance(value, str) and value.startswith("/"):
        return Endpoint(_check_socket(value))
    match = _LOOPBACK.fullmatch(value) if isinstance(value, str) else None
    if match is None or (port := int(match[2])) > 65535:
        refuse(value, "the absolute path of a socket, or a port of this machine, such as '127.0.0.1:9470'")
    return Endpoint(None, "127.0.0.1" if match[1] == "localhost" else match[1].strip("[]"), port)


def _check_instance(value: object) -> str:
    return _said_by(value, lambda: check_name("instance", value))  # type: ignore[arg-type]  # it says so itself


def _check_group(value: object) -> Group:
    if not isinstance(value, str) or not value:
        refuse(value, "the name of a group")
    try:
        entry = grp.getgrgid(int(value)) if value.isdecimal() else grp.getgrnam(value)
    except (KeyError, OverflowError):
        raise ValueError(f"is {value!r}; no such group on this machine (see `getent group`)") from None
    return Group(entry.gr_gid, entry.gr_name)


def _said_by(value: object, check: Callable[[], str]) -> str:
    try:
        return check()
    except ValueError as error:
        raise ValueError(f"is {value!r:.100}: {error}") from error


def _absolute(text: str) -> str:
    """A path of the command line is one of the directory where it was typed."""
    return os.path.abspath(text) if text else text


def _or_itself(make: Callable[[str], object]) -> Callable[[str], object]:
    """What `make` makes of a text; the text itself where it refuses, for the check behind it says what is expected."""

    def read(text: str) -> object:
        try:
            return make(text)
        except ValueError:
            return text

    return read


SWITCH = Kind(_check_switch, lambda text: _SWITCH_WORDS.get(text.lower(), text))
COUNT = Kind(_check_count, _or_itself(int))
SECONDS = Kind(_check_seconds, _or_itself(float))
BYTES = Kind(_check_bytes)
PATH = Kind(_check_path, _absolute)
SOCKET = Kind(_check_socket, _or_itself(socket_path))
ENDPOINT = Kind(_check_endpoint)
INSTANCE = Kind(_check_instance)
GROUP = Kind(_check_group)
