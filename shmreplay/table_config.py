"""Tables declared in a TOML file, for `shmreplay plan` and whoever else creates tables by a file.

    [arenas.steps]                            # what tables over the same steps share; a table may say all of it itself
    max_streams = 16_384                      # also max_sessions, chunk_steps
    [arenas.steps.columns]                    # or columns = "any": steps of any structure, without a signature
    observation = { dtype = "uint8", shape = [84, 84] }    # options as of ArraySpec; "any" is a size of any number
    action = "int64"                          # a scalar
    reward = { dtype = "float32", cast = "same_kind" }

    [tables.replay]
    arena = "steps"                           # without it: an arena of its own, of the table's name
    max_size = 1_000_000                      # and the other arguments of Table, under their names
    sampler = { kind = "Prioritized", priority_exponent = 0.6 }
    rate_limiter = { kind = "SampleToInsertRatio", samples_per_insert = 8, min_size_to_sample = 99, error_buffer = 99 }
    item = { kind = "NStep", n = 3, stack = { observation = 4 } }

    [tables.on_policy]
    kind = "queue"                            # or "stack"
    arena = "steps"
    max_size = 100
    item = { kind = "Unroll", T = 20 }

What is wrong is a ValueError that names the file, the line, the key, what it is and what was expected.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from shmreplay import rate_limiters, selectors, windows
from shmreplay.checks import known_instead
from shmreplay.plan import by_arena, plan
from shmreplay.priorities import td_priority
from shmreplay.specs import ArraySpec
from shmreplay.tables import Table
from shmreplay.toml_file import TomlFile

_Made = TypeVar("_Made")
ANY = "any"
_ARENA_KEYS = ("columns", "chunk_steps", "max_streams", "max_sessions")
_TABLE_KINDS: dict[str, Callable[..., Table]] = {"table": Table, "queue": Table.queue, "stack": Table.stack}
_COLUMN_KEYS = tuple(field.name for field in fields(ArraySpec))


@dataclass(frozen=True)
class _Kind:
    """Something that a file names by `kind`: how it is made, and of which keys."""

    make: Callable[..., Any]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


_SELECTORS = {
    **{kind.__name__: _Kind(kind) for kind in (selectors.Fifo, selectors.Lifo, selectors.Uniform)},
    "Prioritized": _Kind(selectors.Prioritized, ("priority_exponent",)),
    **{kind.__name__: _Kind(kind) for kind in (selectors.MinHeap, selectors.MaxHeap)},
}
_RATIO = ("samples_per_insert", "min_size_to_sample")
_LIMITERS = {
    "MinSize": _Kind(rate_limiters.MinSize, ("min_size_to_sample",)),
    "SampleToInsertRatio": _Kind(rate_limiters.SampleToInsertRatio, (*_RATIO, "error_buffer")),
    "Queue": _Kind(rate_limiters.Queue, ("size",)),
    "Stack": _Kind(rate_limiters.Stack, ("size",)),
    "RateLimiter": _Kind(rate_limiters.RateLimiter, (*_RATIO, "min_diff", "max_diff")),
}
_ENDS = ("at_start", "at_end", "period", "burn_in", "priority")
_WINDOWS = {
    "Transition": _Kind(windows.Transition, (), ("next", "priority")),
    "NStep": _Kind(windows.NStep, ("n",), ("stack", "next", "summed", "at_start", "priority")),
    "Sequence": _Kind(windows.Sequence, ("length",), _ENDS),
    "Episode": _Kind(windows.Episode, (), ("priority",)),
    "Unroll": _Kind(windows.Unroll, ("T",), ("bootstrap", "priority")),
    "Window": _Kind(windows.Window, ("columns",), (*_ENDS, "across_episodes")),
}
_PARTS = {"sampler": _SELECTORS, "remover": _SELECTORS, "rate_limiter": _LIMITERS, "item": _WINDOWS}
_TABLE_KEYS = (
    "kind",
    *(field.name for field in fields(Table) if field.init and field.name not in ("name", "signature")),
    "columns",
)


def read_tables(path: str | os.PathLike[str]) -> list[Table]:
    """Reads the tables that a TOML file declares, in its order.

    Raises:
        ValueError: it is no TOML, declares no table, or one that cannot be.
        OSError: it cannot be read.
    """
    return tables_in(TomlFile(path))


def tables_in(file: TomlFile) -> list[Table]:
    """Returns the tables of a file that was read already.

    Raises:
        ValueError: it declares no table, or one that cannot be.
    """
    try:
        return tables_of(file.document, file.path)
    except ValueError as error:
        raise ValueError(file.named(str(error).removeprefix(f"{file.path}: "))) from error


def tables_of(document: Mapping[str, Any], where: str) -> list[Table]:
    """Returns the tables of a TOML document; `where` is its file's name. Other sections may stand beside `arenas` and
    `tables`.

    Raises:
        ValueError: it declares no table, or one that cannot be.
    """
    arenas = {
        name: _copy(entry, f"{where}: arenas.{name}", _ARENA_KEYS)
        for name, entry in _section(document, "arenas", where).items()
    }
    entries = _section(document, "tables", where)
    if not entries:
        raise ValueError(f"{where}: declares no tables; expected a section such as [tables.replay] with max_size")
    tables = [_read_table(name, entry, arenas, f"{where}: tables.{name}") for name, entry in entries.items()]
    named = by_arena(tables)
    for name in arenas:
        if name not in named:
            raise ValueError(f"{where}: arenas.{name}: no table is in it; expected one with arena = {name!r}")
    with _named(where):
        for group in named.values():
            plan(group)
    return tables


def _section(document: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    section = document.get(name, {})
    if not isinstance(section, Mapping):
        raise ValueError(f"{where}: {name} is {section!r:.100}; expected sections such as [{name}.replay]")
    return section


def _read_table(name: str, entry: object, arenas: Mapping[str, Mapping[str, Any]], where: str) -> Table:
    own = _copy(entry, where, _TABLE_KEYS)
    if not isinstance(own.get("arena", name), str):
        raise ValueError(f"{where}.arena is {own['arena']!r:.100}; expected a name")
    found = {**arenas.get(own.get("arena", name), {}), **own}
    kind = found.pop("kind", "table")
    make = _kind_of(kind, _TABLE_KINDS, where)
    if "max_size" not in found:
        raise ValueError(f"{where}.max_size is missing; expected the number of items at most")
    columns = found.pop("columns", None)
    if columns != ANY and (not isinstance(columns, Mapping) or not columns):
        raise ValueError(
            f"{where}.columns is {columns!r:.100}; expected a section, such as observation = 'float32', here or in its "
            "arena"
        )
    signature = None if columns == ANY else _read_columns(columns, f"{where}.columns")
    options = {
        key: _read_part(value, _PARTS[key], f"{where}.{key}") if key in _PARTS else value
        for key, value in found.items()
    }
    with _named(where, f"table {name!r}: "):
        return make(name, signature, options.pop("max_size"), **options)


def _read_columns(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A dtype, or a section with one, is a column; a section without is a dict of columns."""
    return {name: _read_column(value, f"{where}.{name}") for name, value in entry.items()}


def _read_column(value: object, where: str) -> Any:
    if isinstance(value, Mapping) and value and not isinstance(value.get("dtype"), str):
        return _read_columns(value, where)
    options: dict[str, Any] = {"shape": []}
    options.update({"dtype": value} if isinstance(value, str) else _copy(value, where, _COLUMN_KEYS, "a dtype's name"))
    if isinstance(options["shape"], list):
        options["shape"] = tuple(None if size == ANY else size for size in options["shape"])
    with _named(where, "ArraySpec: "):
        return ArraySpec(**options)


def _read_part(value: object, kinds: Mapping[str, _Kind], where: str) -> Any:
    options = {"kind": value} if isinstance(value, str) else _copy(value, where, None, "the name of a kind")
    kind: Any = options.pop("kind", None)
    made = _kind_of(kind, kinds, where)
    _check_keys(options, (*made.required, *made.optional), where, kind)
    for key in made.required:
        if key not in options:
            raise ValueError(f"{where}.{key} is missing; {kind} needs {', '.join(made.required)}")
    with _named(where, f"{kind}: "):
        return made.make(**{key: _read_option(key, option) for key, option in options.items()})


def _read_option(key: str, value: Any) -> Any:
    """Python's form of a value: tuples for lists, and a priority by TD errors."""
    if key == "priority" and isinstance(value, Mapping) and set(value) <= {"td", "eta"} and "td" in value:
        return td_priority(value["td"], value.get("eta", 0.9))
    if isinstance(value, list):
        return tuple(value)
    return {name: _read_option(name, part) for name, part in value.items()} if isinstance(value, Mapping) else value


def _copy(
    entry: object, where: str, keys: tuple[str, ...] | None, instead: str = "keys and their values"
) -> dict[str, Any]:
    """A copy of a section whose keys are among `keys`."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} is {entry!r:.100}; expected {instead}, or a section")
    if keys is not None:
        _check_keys(entry, keys, where, "it")
    return dict(entry)


def _check_keys(entry: Mapping[str, Any], keys: tuple[str, ...], where: str, what: str) -> None:
    for key in entry:
        if key in keys:
            continue
        raise ValueError(f"{where}.{key} is not known; {known_instead(key, keys, what)}")


def _kind_of(kind: object, kinds: Mapping[str, _Made], where: str) -> _Made:
    if isinstance(kind, str) and kind in kinds:
        return kinds[kind]
    raise ValueError(f"{where}.kind is {kind!r:.100}; expected one of {', '.join(map(repr, kinds))}")


@contextlib.contextmanager
def _named(where: str, said_twice: str = "") -> Iterator[None]:
    """Names the place in the file in what the specifications refuse."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {str(error).removeprefix(said_twice)}") from error
