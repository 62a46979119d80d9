"""`shmreplay plan`: how much memory tables will take, before they are created."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
import sys
import warnings
from collections.abc import Callable, Sequence

from shmreplay import selectors
from shmreplay.base.host_memory import show_bytes
from shmreplay.base.json_values import to_json
from shmreplay.columns.specs import ArraySpec
from shmreplay.estimates import Estimate, estimate
from shmreplay.tables.plan import by_arena
from shmreplay.tables.table import Table
from shmreplay.tables.table_config import read_tables

_COLUMN = re.compile(r"(?P<name>[^=]+)=(?P<dtype>[A-Za-z0-9_]+)(\[(?P<shape>[0-9, ]*)\])?")
_REMOVERS: dict[str, Callable[[], selectors.Selector]] = {
    "fifo": selectors.Fifo,
    "lifo": selectors.Lifo,
    "uniform": selectors.Uniform,
    "prioritized": lambda: selectors.Prioritized(1.0),
    "minheap": selectors.MinHeap,
    "maxheap": selectors.MaxHeap,
}
_EPILOG = """\
CONFIG is a TOML file:                            or, of one table:

  [tables.replay]                                   shmreplay plan --max-size 1000000 \\
  max_size = 1_000_000                                  --column 'observation=uint8[84,84,4]' \\
  item = { kind = "NStep", n = 3 }                      --column action=int64
  [tables.replay.columns]
  observation = { dtype = "uint8", shape = [84, 84, 4] }
  action = "int64"
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "plan",
        help="show how much memory tables will take",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("config", nargs="?", metavar="CONFIG", help="a file that declares tables; or describe one table with options")
    add("--json", action="store_true", help="print JSON")
    one = parser.add_argument_group("one table").add_argument
    one(
        "--column",
        action="append",
        metavar="NAME=DTYPE[SHAPE]",
        help="a column of a step; give it once for each column",
    )
    one("--max-size", type=_parse_count, metavar="N", help="largest number of items")
    one("--item-steps", type=_parse_count, metavar="N", help="steps of the longest item (default: 1)")
    one("--remover", choices=sorted(_REMOVERS), help="any but fifo needs more room (default: fifo)")
    one("--chunk-steps", type=_parse_count, metavar="N", help="steps a chunk (default: by size)")
    one(
        "--capacity-steps",
        type=_parse_count,
        metavar="N",
        help="number of steps to have room for (default: by max-size)",
    )
    one(
        "--max-streams",
        type=_parse_count,
        metavar="N",
        help="largest number of streams of open writers (default: 1024)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the estimate of every arena, term by term."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        tables = _tables(args)
        found = [_estimate(group, args.config) for group in by_arena(tables).values()]
    for warning in warned:
        print(f"shmreplay plan: warning: {warning.message}", file=sys.stderr)
    print(_as_json(found, args.config) if args.json else _as_text(found))
    return 0


def _tables(args: argparse.Namespace) -> list[Table]:
    options = {
        name: getattr(args, name)
        for name in ("item_steps", "remover", "chunk_steps", "capacity_steps", "max_streams")
        if getattr(args, name) is not None
    }
    if args.config is not None:
        if given := [name for name in ("column", "max_size", *options) if getattr(args, name) is not None]:
            raise ValueError(f"--{given[0].replace('_', '-')} describes one table; {args.config} declares its own")
        return read_tables(args.config)
    for name in ("column", "max_size"):
        if getattr(args, name) is None:
            raise ValueError(f"--{name.replace('_', '-')} is missing; give it, or a CONFIG file that declares tables")
    if "remover" in options:
        options["remover"] = _REMOVERS[options["remover"]]()
    return [Table("table", dict(_parse_column(text) for text in args.column), args.max_size, **options)]


def _estimate(tables: Sequence[Table], config: str | None) -> Estimate:
    try:
        return estimate(tables)
    except ValueError as error:
        raise ValueError(f"{config}: {error}" if config is not None else str(error)) from error


def _as_text(found: Sequence[Estimate]) -> str:
    texts = [str(one) for one in found]
    if len(found) > 1:
        texts.append(f"{len(found)} arenas: {show_bytes(sum(one.total_bytes for one in found))}")
    return "\n\n".join(texts)


def _as_json(found: Sequence[Estimate], config: str | None) -> str:
    """The estimate of the one table that the options describe, or those of all arenas of a file."""
    plain = [dataclasses.asdict(one) for one in found]
    total = sum(one.total_bytes for one in found)
    return to_json(plain[0] if config is None else {"arenas": plain, "total_bytes": total})


def _parse_count(text: str) -> int:
    """Reads 1000000, 1_000_000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        with contextlib.suppress(ValueError):
            if (number := float(text)).is_integer():
                return int(number)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number; expected one such as 1000000, 1_000_000 or 1e6")


def _parse_column(text: str) -> tuple[str, ArraySpec]:
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise ValueError(f"--column {text}: expected NAME=DTYPE or NAME=DTYPE[SHAPE], such as image=uint8[84,84]")
    shape = tuple(int(size) for size in (match["shape"] or "").split(",") if size.strip())
    try:
        return match["name"], ArraySpec(shape, match["dtype"])
    except (TypeError, ValueError) as error:
        raise type(error)(f"--column {text}: {error}") from None
