"""Handles that came out of a pickle. They attach with their first use, so unpickling neither waits nor fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from shmreplay.errors import TableClosed


def unattached(kind: type[Any], shown: str, make: Callable[..., Any], *arguments: Any) -> Any:
    """Returns a handle that becomes `make(*arguments)` with its first use. It raises there what that call raises.

    Args:
        kind: the class of the handle, which it is an instance of from the beginning.
        shown: the repr of the handle that was pickled.
    """
    handle = object.__new__(_unattached(kind))
    vars(handle).update(_shown=shown, _make=lambda: make(*arguments))
    return handle


def refuse_pickle(what: str, why: str, instead: str) -> NoReturn:
    """Raises the TypeError for an object that belongs to its process. `instead` says what to pass to another one."""
    raise TypeError(f"{what} cannot be pickled, {why}; {instead}")


_classes: dict[type[Any], type[Any]] = {}


def _unattached(kind: type[Any]) -> type[Any]:
    """A class of handles that are of this kind and lack all their attributes."""
    if kind not in _classes:
        _classes[kind] = type(
            kind.__name__, (kind,), {"__doc__": kind.__doc__, "__getattr__": _attach, "__repr__": _show}
        )
    return _classes[kind]


def _attach(handle: Any, name: str) -> Any:
    """Makes the handle what it stands for when an attribute is missing, and returns that attribute.

    It shares the dict of the handle that is made, so two threads that come first at the same time get the same one.
    """
    if name.startswith("__"):  # what `copy` and others look for is in no handle's dict
        raise AttributeError(name)
    own = vars(handle)
    if (make := own.get("_make")) is not None:  # None: another thread was faster
        made = own.setdefault("_made", make())
        if not isinstance(handle, type(made)):  # with shards instead of without, or the other way round
            raise TableClosed(f"the table of {own['_shown']} was dropped; take a handle of the new one of its name")
        handle.__dict__ = vars(made)
        handle.__class__ = type(made)
    return object.__getattribute__(handle, name)


def _show(handle: Any) -> str:
    return f"{vars(handle)['_shown'].removesuffix('>')}, not used yet in this process>"
