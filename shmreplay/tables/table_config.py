"""Tables declared in a TOML file, for the daemon, `shmreplay plan` and other commands.

    [arenas.steps]                            # for tables that share steps; a table alone can have these keys itself
    max_streams = 16_384                      # also max_sessions, chunk_steps
    [arenas.steps.columns]                    # or columns = "any": steps of any structure, without a signature
    observation = { dtype = "uint8", shape = [84, 84] }    # options of ArraySpec; size "any" is an axis of any size
    action = "int64"                          # a scalar
    reward = { dtype = "float32", cast = "same_kind" }

    [tables.replay]
    arena = "steps"                           # without it: an arena with the table's name
    max_size = 1_000_000                      # and the other arguments of Table, under their names
    sampler = { kind = "Prioritized", priority_exponent = 0.6 }
    rate_limiter = { kind = "SampleToInsertRatio", samples_per_insert = 8, min_size_to_sample = 99, error_buffer = 99 }
    item = { kind = "NStep", n = 3, stack = { observation = 4 } }

    [tables.on_policy]
    kind = "queue"                            # or "stack"
    arena = "steps"
    max_size = 100
    item = { kind = "Unroll", T = 20 }

All mistakes are in one ValueError, one line each: the file, the line, the key, the value and what was expected.
The functions below add each mistake to `problems` and leave the value out, so that they check the rest as well.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from shmreplay import rate_limiters, selectors
from shmreplay.base.checks import check_int, known_instead
from shmreplay.base.toml_file import TomlFile
from shmreplay.columns.specs import ArraySpec
from shmreplay.rules import windows
from shmreplay.rules.priorities import td_priority
from shmreplay.tables.plan import by_arena, plan
from shmreplay.tables.table import INTS, MAX_CHUNK_STEPS, Table

_Made = TypeVar("_Made")
ANY = "any"
_ARENA_KEYS = ("columns", "chunk_steps", "max_streams", "max_sessions")
_TABLE_KINDS: dict[str, Callable[..., Table]] = {"table": Table, "queue": Table.queue, "stack": Table.stack}
_COLUMN_KEYS = tuple(field.name for field in fields(ArraySpec))
_COLUMNS_EXPECTED = "expected a section, such as observation = 'float32', here or in its arena"
_INTS = {**INTS, "chunk_steps": (1, MAX_CHUNK_STEPS)}


class TablesRefused(ValueError):
    """The declarations in a file are wrong. `problems` has one line for each mistake, which names its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True)
class _Kind:
    """Something that a file names by `kind`: how it is made, and with which keys."""

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
        TablesRefused: it declares no table, or has mistakes.
        ValueError: it is not TOML.
        OSError: it cannot be read.
    """
    return tables_in(TomlFile(path))


def tables_in(file: TomlFile) -> list[Table]:
    """Returns the tables of a file that is already read.

    Raises:
        TablesRefused: it declares no table, or has mistakes.
    """
    try:
        return tables_of(file.document, file.path)
    except TablesRefused as error:
        raise TablesRefused([file.named(text.removeprefix(f"{file.path}: ")) for text in error.problems]) from error


def tables_of(document: Mapping[str, Any], where: str) -> list[Table]:
    """Returns the tables of a TOML document; `where` is the file's name. Sections other than `arenas` and `tables`
    are ignored.

    Raises:
        TablesRefused: it declares no table, or has mistakes.
    """
    problems: list[str] = []
    arenas = {
        name: _read_arena(entry, f"{where}: arenas.{name}", problems)
        for name, entry in _section(document, "arenas", where, problems).items()
    }
    entries = _section(document, "tables", where, problems)
    if not entries and not problems:
        problems.append(f"{where}: declares no tables; expected a section such as [tables.replay] with max_size")
    tables = {
        name: _read_table(name, entry, arenas, f"{where}: tables.{name}", problems) for name, entry in entries.items()
    }
    _check_arenas(arenas, entries, tables, where, problems)
    if problems:
        raise TablesRefused(problems)
    return [table for table in tables.values() if table is not None]


def _section(document: Mapping[str, Any], name: str, where: str, problems: list[str]) -> Mapping[str, Any]:
    section = document.get(name, {})
    if isinstance(section, Mapping):
        return section
    problems.append(f"{where}: {name} is {section!r:.100}; expected sections such as [{name}.replay]")
    return {}


@dataclass(frozen=True)
class _Arena:
    """A section of [arenas], which tables that share steps have in common.

    Attributes:
        options: its values; its columns are parsed, as `signature`.
        is_valid: whether it has no mistake; otherwise its tables cannot be checked.
    """

    options: Mapping[str, Any]
    is_valid: bool = True


def _read_arena(entry: object, where: str, problems: list[str]) -> _Arena:
    before = len(problems)
    options = _read_options(entry, _ARENA_KEYS, where, problems)
    return _Arena(options, is_valid=len(problems) == before)


def _read_options(entry: object, keys: tuple[str, ...], where: str, problems: list[str]) -> dict[str, Any]:
    """The valid values of a section; its columns are parsed, as `signature`."""
    options: dict[str, Any] = {}
    with _noted(problems):
        options = _copy(entry, where, keys, problems)
    for name, bounds in _INTS.items():
        if name in options:
            with _noted(problems), _named(where, f"{where}: "):
                check_int(where, name, options[name], *bounds)
    if "columns" in options:
        options["signature"] = _read_signature(options.pop("columns"), f"{where}.columns", problems)
    return options


def _check_arenas(
    arenas: Mapping[str, _Arena],
    entries: Mapping[str, Any],
    tables: Mapping[str, Table | None],
    where: str,
    problems: list[str],
) -> None:
    """Checks that each arena has tables and that they fit together, if all of them could be read."""
    of = {name: _arena_of(name, entry) for name, entry in entries.items()}
    if arenas.keys() >= {
        arena for name, arena in of.items() if tables[name] is None
    }:  # else a broken table may be in it
        problems += [
            f"{where}: arenas.{name}: no table is in it; expected one with arena = {name!r}"
            for name in arenas
            if name not in of.values()
        ]
    unfinished = {of[name] for name, table in tables.items() if table is None}
    for arena, group in by_arena(table for table in tables.values() if table is not None).items():
        if arena not in unfinished:
            section = f"arenas.{arena}" if arena in arenas else f"tables.{group[0].owner.name}"
            with _noted(problems), _named(f"{where}: {section}"):
                plan(group)


def _arena_of(name: str, entry: object) -> str:
    """The name of a table's arena; the table's own name if it gives none, or one that is not a str."""
    said = entry.get("arena", name) if isinstance(entry, Mapping) else name
    return said if isinstance(said, str) else name


def _read_table(
    name: str, entry: object, arenas: Mapping[str, _Arena], where: str, problems: list[str]
) -> Table | None:
    """Returns the table; None if there is a mistake, which is then in `problems`."""
    before = len(problems)
    own = _read_options(entry, _TABLE_KEYS, where, problems)
    if not isinstance(entry, Mapping):
        return None
    if not isinstance(own.get("arena", name), str):
        problems.append(f"{where}.arena is {own['arena']!r:.100}; expected a name")
    arena = arenas.get(_arena_of(name, own), _Arena({}))
    found = {**arena.options, **own}
    make: Callable[..., Table] = Table
    with _noted(problems):
        make = _kind_of(found.pop("kind", "table"), _TABLE_KINDS, where)
    if "max_size" not in found:
        problems.append(f"{where}.max_size is missing; expected the number of items at most")
    if "signature" not in found and arena.is_valid:
        problems.append(_no_columns(own.get("arena"), arenas, where))
    for key, kinds in _PARTS.items():
        if key in found:
            found[key] = _read_part(found[key], kinds, f"{where}.{key}", problems)
    if arena.is_valid and len(problems) == before:
        with _noted(problems), _named(where, f"table {name!r}: "):
            return make(name, found.pop("signature"), found.pop("max_size"), **found)
    return None


def _no_columns(named: object, arenas: Mapping[str, _Arena], where: str) -> str:
    """Text for a table without columns. Perhaps it names an arena that is missing."""
    if isinstance(named, str) and named not in arenas:
        there = f"the file has {', '.join(map(repr, arenas))}" if arenas else f"expected a section [arenas.{named}]"
        return f"{where}.arena is {named!r}: there is no such arena; {there}, or give the table columns of its own"
    return f"{where}.columns is missing; {_COLUMNS_EXPECTED}"


def _read_signature(columns: object, where: str, problems: list[str]) -> dict[str, Any] | None:
    if columns == ANY:
        return None
    if isinstance(columns, Mapping) and columns:
        return _read_columns(columns, where, problems)
    problems.append(f"{where} is {columns!r:.100}; {_COLUMNS_EXPECTED}")
    return None


def _read_columns(entry: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, Any]:
    """A dtype, or a section with one, is a column. A section without a dtype is a dict of columns."""
    return {name: _read_column(value, f"{where}.{name}", problems) for name, value in entry.items()}


def _read_column(value: object, where: str, problems: list[str]) -> Any:
    if isinstance(value, Mapping) and value and not isinstance(value.get("dtype"), str):
        return _read_columns(value, where, problems)
    options: dict[str, Any] = {"shape": []}
    with _noted(problems):
        options |= (
            {"dtype": value}
            if isinstance(value, str)
            else _copy(value, where, _COLUMN_KEYS, problems, "a dtype's name")
        )
        if isinstance(options["shape"], list):
            options["shape"] = tuple(None if size == ANY else size for size in options["shape"])
        with _named(where, "ArraySpec: "):
            return ArraySpec(**options)
    return None


def _read_part(value: object, kinds: Mapping[str, _Kind], where: str, problems: list[str]) -> Any:
    before = len(problems)
    with _noted(problems):
        options = {"kind": value} if isinstance(value, str) else _copy(value, where, None, [], "the name of a kind")
        kind: Any = options.pop("kind", None)
        made = _kind_of(kind, kinds, where)
        options = _known(options, (*made.required, *made.optional), where, kind, problems)
        problems += [
            f"{where}.{key} is missing; {kind} needs {', '.join(made.required)}"
            for key in made.required
            if key not in options
        ]
        if len(problems) == before:
            with _named(where, f"{kind}: "):
                return made.make(**{key: _read_option(key, option) for key, option in options.items()})
    return None


def _read_option(key: str, value: Any) -> Any:
    """Converts a TOML value: lists become tuples, and a priority may be from TD errors."""
    if key == "priority" and isinstance(value, Mapping) and set(value) <= {"td", "eta"} and "td" in value:
        return td_priority(value["td"], value.get("eta", 0.9))
    if isinstance(value, list):
        return tuple(value)
    return {name: _read_option(name, part) for name, part in value.items()} if isinstance(value, Mapping) else value


def _copy(
    entry: object,
    where: str,
    keys: tuple[str, ...] | None,
    problems: list[str],
    instead: str = "keys and their values",
) -> dict[str, Any]:
    """Copies the known keys of a section. Raises ValueError if it is not a section."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} is {entry!r:.100}; expected {instead}, or a section")
    return dict(entry) if keys is None else _known(entry, keys, where, "it", problems)


def _known(
    entry: Mapping[str, Any], keys: tuple[str, ...], where: str, what: str, problems: list[str]
) -> dict[str, Any]:
    problems += [f"{where}.{key} is not known; {known_instead(key, keys, what)}" for key in entry if key not in keys]
    return {key: value for key, value in entry.items() if key in keys}


def _kind_of(kind: object, kinds: Mapping[str, _Made], where: str) -> _Made:
    if isinstance(kind, str) and kind in kinds:
        return kinds[kind]
    raise ValueError(f"{where}.kind is {kind!r:.100}; expected one of {', '.join(map(repr, kinds))}")


@contextlib.contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Adds a ValueError of the block to `problems`, and goes on after the block."""
    try:
        yield
    except ValueError as error:
        problems.append(str(error))


@contextlib.contextmanager
def _named(where: str, said_twice: str = "") -> Iterator[None]:
    """Adds the place in the file to errors of the specifications."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {str(error).removeprefix(said_twice)}") from error
