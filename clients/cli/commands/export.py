"""`shmreplay export`: writes items of a table to an .npz file, which NumPy reads, or episodes as a Minari data set."""

from __future__ import annotations

import argparse
import contextlib
import os

import numpy as np

from shmreplay.base.host_memory import show_bytes
from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.items.dataset_items import export_dataset
from shmreplay.clients.cli.items.item_exporter import Exporter
from shmreplay.clients.cli.items.item_file import write_items
from shmreplay.clients.cli.items.shown_items import shards_of
from shmreplay.clients.cli.items.whole_file import whole_file
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected, key
from shmreplay.clients.cli.terminal.printing import counted
from shmreplay.errors import ShmReplayError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "export",
        help="write items of a table to a NumPy file, or as a Minari data set",
        description="Writes items to an .npz file, in insertion order, while the table is in use: np.load(FILE) has "
        "data/NAME, mask/NAME, keys, priorities and so on. It does not count as a sample. The file appears when it is "
        "complete. `shmreplay import` puts the items into an equal table. With --minari, the episodes of a table of "
        "transitions become a data set.",
    )
    parser.add_argument("table", metavar="TABLE")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="FILE.npz", help="the file; an existing one is replaced")
    where.add_argument("--minari", metavar="DATASET", help="the data set's id, such as mine/cartpole-v0")
    parser.add_argument(
        "--env", metavar="ID", help="with --minari: the environment that it names, and whose spaces it has"
    )
    parser.add_argument("--keys", nargs="+", type=key, metavar="KEY", help="only these items")
    parser.add_argument("--compress", action="store_true", help="compress with zlib: smaller, but several times slower")
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints how many items are in the file, or how many episodes in the data set."""
    if args.minari is not None:
        if args.keys is not None or args.compress:
            raise ShmReplayError("--keys and --compress are for files; expected none of them with --minari")
        return export_dataset(args)
    if args.env is not None:
        raise ShmReplayError("--env is for data sets; expected it with --minari alone")
    with connected(args) as client, whole_file(args.to) as file:
        table = client.table(args.table)
        exporter = Exporter(os.path.dirname(os.path.abspath(args.to)))
        with contextlib.closing(exporter):
            chosen = None if args.keys is None else np.array(args.keys, np.int64)
            asked = exporter.add_table(args.table, shards_of(table), chosen, args.timeout)
            write_items(file, table.spec, exporter.layout, exporter.columns, is_compressed=args.compress)
        size = file.tell()
    found = {"path": args.to, "items": exporter.num_items, "bytes": size, "gone": asked - exporter.num_items}
    if args.json:
        print(to_json(found))
        return 0
    gone = f" ({found['gone']} were removed meanwhile)" if found["gone"] else ""
    print(f"{args.to}: {counted(found['items'], 'item')} of table {args.table!r}, {show_bytes(size)}{gone}")
    return 0
