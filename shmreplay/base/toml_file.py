"""TomlFile: a TOML document that knows the line of each key, for error messages."""

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
    """A TOML file that was read.

    Attributes:
        path: its name, as given.
        document: its content, as plain dicts, lists and values.

    Raises:
        ValueError: it is not TOML; the text names the line.
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
        """Puts the file and the line in front of a text that begins with a key: `tables.replay.max_size is 0`.

        The line of a missing key is that of its section. A text that begins with no key gets no line.
        """
        keys = self._keys_of(text)
        return f"{self.path}:{self.line_of(keys)}: {text}" if keys else f"{self.path}: {text}"

    def _keys_of(self, text: str) -> list[str]:
        """The keys that the text begins with, as far as the document has them: `a.b` and `a: b is` both give a, b."""
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
        """Returns the line, from 1, on which the statement with the key begins.

        It is found with the parser, so that multi-line values and quoted names are read correctly: it is the line after
        the longest beginning of the file that is valid TOML and does not have the key. Takes milliseconds, so only
        errors use it.
        """
        lines = self._text.split("\n")
        line = 1
        for end in range(1, len(lines) + 1):
            try:
                document = tomllib.loads("\n".join(lines[:end]))
            except tomllib.TOMLDecodeError:
                continue  # this beginning ends within a value
            if _has(document, keys):
                break
            line = end + 1
        return line


_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")


def _line_of(error: ValueError, read: bytes) -> int:
    """The line, from 1, of the parser's error, which is only in the error's text."""
    if isinstance(error, UnicodeDecodeError):
        return read.count(b"\n", 0, error.start) + 1
    place = _PLACE.search(str(error))
    return int(place[1]) if place is not None and place[1] else max(1, len(read.splitlines()))


def _reason(error: ValueError) -> str:
    """The error's text without its line."""
    return _PLACE.sub("", str(error))


def _has(document: Mapping[str, Any], keys: Sequence[str]) -> bool:
    node: object = document
    for key in keys:
        if not isinstance(node, Mapping) or key not in node:
            return False
        node = node[key]
    return True
