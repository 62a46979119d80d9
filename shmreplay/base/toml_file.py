"""TomlFile: a TOML document, and on which line of its file a key stands, so that what is refused can be found."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class TomlFile:
    """A file that was read and is TOML.

    Attributes:
        path: its name, as given.
        document: what it says, as plain dicts, lists and values.

    Raises:
        ValueError: it is no TOML; the text names the line.
        OSError: it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        with open(path, "rb") as file:
            read = file.read()
        try:
            self._text = read.decode()
            self.document: dict[str, Any] = tomllib.loads(self._text)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path}:{_line_of(error, read)}: not TOML: {_reason(error)}") from error

    def named(self, text: str) -> str:
        """A text that begins with a key, such as `tables.replay.max_size is 0`, behind the file and the key's line.

        Of a key that is missing the line is that of its section; a text that begins with no key has none.
        """
        keys = self._keys_of(text)
        return f"{self.path}:{self.line_of(keys)}: {text}" if keys else f"{self.path}: {text}"

    def _keys_of(self, text: str) -> list[str]:
        """The keys that the text begins with, as far as the document has them: `a.b` and `a: b is` are two."""
        found: list[str] = []
        node: object = self.document
        while isinstance(node, Mapping):
            begins = [key for key in node if re.match(rf"{re.escape(key)}(?![\w-])", text)]
            if not begins:
                break
            key = max(begins, key=len)
            found.append(key)
            node, text = node[key], text[len(key) :].lstrip(".: ")
        return found

    def line_of(self, keys: Sequence[str]) -> int:
        """The line, from 1, on which the statement begins that first brings a key which is there.

        That is the one behind the last beginning of the file that is TOML by itself and lacks the key: so multi-line
        values and quoted names are as the parser has them. Takes milliseconds, and is only asked for in errors.
        """
        lines = self._text.split("\n")
        line = 1
        for end in range(1, len(lines) + 1):
            try:
                document = tomllib.loads("\n".join(lines[:end]))
            except tomllib.TOMLDecodeError:
                continue  # it ends within a value
            if _has(document, keys):
                break
            line = end + 1
        return line


_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")


def _line_of(error: ValueError, read: bytes) -> int:
    """The line, from 1, at which the parser gave up: it is told in the error's text alone."""
    if isinstance(error, UnicodeDecodeError):
        return read.count(b"\n", 0, error.start) + 1
    place = _PLACE.search(str(error))
    return int(place[1]) if place is not None and place[1] else max(1, len(read.splitlines()))


def _reason(error: ValueError) -> str:
    """The error's text without the place."""
    return _PLACE.sub("", str(error))


def _has(document: Mapping[str, Any], keys: Sequence[str]) -> bool:
    node: object = document
    for key in keys:
        if not isinstance(node, Mapping) or key not in node:
            return False
        node = node[key]
    return True
