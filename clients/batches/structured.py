"""Structured: what batches of every library are, arrays in `.data`; how one is shown, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from shmreplay.columns.structure import Node, SeqNode, kind_text, leaf_paths

MAX_SHOWN = 8  # parts in a repr
MAX_PATH = 40  # characters of a part's path there
MAX_KIND = 200  # characters of what an error says about the structure


class Structured:
    """Arrays in the structure `_root`, in `.data`. A part of it is looked for there, not in the object itself.

    The errors that say so exist at run time alone, so that a type checker finds the mistake by itself.
    """

    _called = "batch"  # in texts

    @property
    def _root(self) -> Node:
        """The structure of `data`."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getitem__(self, part):
            refuse_part(self, part)

        def __getattr__(self, name):
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # again, for the error that came from within
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                is_tuple = isinstance(self._root, SeqNode)
                is_part = name in getattr(self._root, "names", ())
                part = f".{name}" if is_tuple else f"[{name!r}]"
                text += f"; write {self._called}.data{part}" if is_part else f"; {_where(self)}"
            raise AttributeError(text, name=name, obj=self)


def refuse_part(shown: Structured, part: object) -> NoReturn:
    """Raises the TypeError for an object of which a part is asked for by [...]."""
    text = f"a {type(shown).__name__} has no [{part!r}]; "
    if isinstance(part, str) and part in getattr(shown._root, "names", ()) and not isinstance(shown._root, SeqNode):
        raise TypeError(f"{text}write {shown._called}.data[{part!r}]")
    raise TypeError(text + _where(shown))


def show_parts(root: Node, values: Iterable[Any]) -> str:
    """The parts of a batch for its repr: path, dtype and shape of each, up to MAX_SHOWN. A str stands for itself."""
    shown = [
        f"{_shortened(path)} {_shape(value)}".lstrip() for path, value in zip(leaf_paths(root), values, strict=True)
    ]
    more = f", and {len(shown) - MAX_SHOWN} more" if len(shown) > MAX_SHOWN else ""
    return ", ".join(shown[:MAX_SHOWN]) + more


def _where(shown: Structured) -> str:
    return f"its arrays are in {shown._called}.data, which is {_shortened(kind_text(shown._root), MAX_KIND)}"


def _shortened(text: str, most: int = MAX_PATH) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _shape(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not hasattr(value, "shape"):
        return f"{type(value).__name__} of {len(value)}"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{_shortened(dtype)}{list(value.shape)}"
