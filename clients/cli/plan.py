"""`shmreplay plan`: what memory a table will take, before it is created."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import re
from collections.abc import Callable

from shmreplay import selectors
from shmreplay.plan import estimate
from shmreplay.specs import ArraySpec
from shmreplay.tables import Table

_COLUMN = re.compile(r"(?P<name>[^=]+)=(?P<dtype>[A-Za-z0-9_]+)(\[(?P<shape>[0-9, ]*)\])?")
_REMOVERS: dict[str, Callable[[], selectors.Selector]] = {
    "fifo": selectors.Fifo,
    "lifo": selectors.Lifo,
    "uniform": selectors.Uniform,
    "prioritized": lambda: selectors.Prioritized(1.0),
    "minheap": selectors.MinHeap,
    "maxheap": selectors.MaxHeap,
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    parser = subparsers.add_parser(
        "plan",
        help="show what memory a table will take",
        epilog="example: shmreplay plan --max-size 1000000 --column 'observation=uint8[84,84,4]' --column action=int64",
    )
    add = parser.add_argument
    add("--column", action="append", required=True, metavar="NAME=DTYPE[SHAPE]", help="one for each column of a step")
    add("--max-size", type=_parse_count, required=True, metavar="N", help="items at most")
    add("--item-steps", type=_parse_count, default=1, metavar="N", help="steps of the longest item (default: 1)")
    add("--remover", choices=sorted(_REMOVERS), default="fifo", help="any but fifo needs more room (default: fifo)")
    add("--chunk-steps", type=_parse_count, metavar="N", help="steps a chunk (default: by size)")
    add(
        "--capacity-steps",
        type=_parse_count,
        metavar="N",
        help="steps to have room for (default: what max-size items need)",
    )
    add(
        "--max-streams",
        type=_parse_count,
        default=1024,
        metavar="N",
        help="open writers' streams at most (default: 1024)",
    )
    add("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the estimate with every term."""
    table = Table(
        "table",
        dict(_parse_column(text) for text in args.column),
        args.max_size,
        item_steps=args.item_steps,
        remover=_REMOVERS[args.remover](),
        chunk_steps=args.chunk_steps,
        capacity_steps=args.capacity_steps,
        max_streams=args.max_streams,
    )
    found = estimate([table])
    print(json.dumps(dataclasses.asdict(found), indent=2) if args.json else found)
    return 0


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
