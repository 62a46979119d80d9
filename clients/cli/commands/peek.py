"""`shmreplay peek`: lists some items of a table, with their numbers."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.base.dtypes import plain_number
from shmreplay.base.json_values import to_json
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.cli.items.shown_items import NUMBERS, numbers_of, outputs_of, shards_of, short
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected, positive
from shmreplay.clients.cli.terminal.printing import counted, format_rows
from shmreplay.clients.tables.table import TableHandle

AT_A_TIME = 64
MOST_COLUMNS = 4  # of an item's scalars, shown beside its numbers


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "peek",
        help="list some items of a table",
        description="Lists items with their numbers and up to four of their scalars. It does not count as a sample.",
    )
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("-n", type=positive, default=10, metavar="N", help="how many items (default: 10)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--newest", dest="which", action="store_const", const="newest", help="the last ones inserted (the default)"
    )
    which.add_argument("--oldest", dest="which", action="store_const", const="oldest", help="the first ones inserted")
    which.add_argument(
        "--random", dest="which", action="store_const", const="random", help="any, each with the same probability"
    )
    add_daemon_options(parser)
    parser.set_defaults(which="newest")


def run(args: argparse.Namespace) -> int:
    """Prints one line an item, newest or oldest first. Items of several shards are ordered by their ages."""
    rng = np.random.default_rng()
    items: list[dict[str, Any]] = []
    with connected(args) as client:
        shards = shards_of(client.table(args.table))
        keys = [shard.keys() for shard in shards]
        total = sum(map(len, keys))
        for shard, all_keys, chosen in zip(shards, keys, _choose(keys, args.which, args.n, rng), strict=True):
            items += _read(shard, all_keys[chosen], args.timeout)
    items.sort(key=lambda item: item["age"], reverse=args.which == "oldest")
    items = items[: args.n]
    if args.json:
        print(to_json(items))
        return 0
    print(f"table {args.table!r}: {len(items)} of {counted(total, 'item')}")
    if items:
        print(_listed(items, shutil.get_terminal_size((80, 24)).columns))
    return 0


def _listed(items: list[dict[str, Any]], width: int) -> str:
    """One line for each item, with as many of its scalars as fit."""
    scalars = list(items[0]["scalars"])[:MOST_COLUMNS]
    while True:
        rows = [
            (*(short(item[name]) for name in NUMBERS), *(short(item["scalars"].get(name, "-")) for name in scalars))
            for item in items
        ]
        text = format_rows((*NUMBERS, *scalars), rows)
        if not scalars or max(map(len, text.splitlines())) <= width:
            return text
        scalars.pop()


def _choose(
    keys: Sequence[NDArray[np.int64]], which: str, n: int, rng: np.random.Generator
) -> list[NDArray[np.intp] | slice]:
    """The positions, in each shard, of the keys to show."""
    if which == "newest":
        return [slice(max(0, len(of_shard) - n), None) for of_shard in keys]
    if which == "oldest":
        return [slice(n) for _ in keys]
    ends = np.cumsum([len(of_shard) for of_shard in keys])
    places = rng.permutation(int(ends[-1]))[:n]
    return [
        np.sort(places[(places >= end - len(of_shard)) & (places < end)]) - (end - len(of_shard))
        for of_shard, end in zip(keys, ends, strict=True)
    ]


def _read(table: TableHandle, keys: NDArray[np.int64], timeout_s: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for first in range(0, len(keys), AT_A_TIME):
        batch = table.get(keys[first : first + AT_A_TIME], timeout_s)
        for index, numbers in enumerate(numbers_of(batch)):
            found.append({**numbers, "scalars": _scalars(batch, index)})
    return found


def _scalars(batch: Batch, item: int) -> dict[str, Any]:
    """The outputs of an item that are single numbers and not missing."""
    return {
        output.path: plain_number(output.data[()])
        for output in outputs_of(batch, item)
        if output.path and output.is_array and output.data.ndim == 0 and output.mask.all()
    }
