"""`shmreplay import`: inserts the items of a file that `shmreplay export` wrote, or a Minari data set, into a table."""

from __future__ import annotations

import argparse
import contextlib
import sys

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.items.dataset_items import import_dataset
from shmreplay.clients.cli.items.item_file import ItemFile, open_items
from shmreplay.clients.cli.items.item_importer import Importer
from shmreplay.clients.cli.items.shown_items import shards_of
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected, seconds
from shmreplay.clients.cli.terminal.printing import Progress, counted, show_progress
from shmreplay.errors import ShmReplayError, SignatureMismatch
from shmreplay.tables.table import Table


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "import",
        help="put the items of an exported file, or a Minari data set, into a table",
        description="Inserts the items of a file that `shmreplay export` wrote, in its order, into a table with the "
        "same columns and items. Data, masks and priorities are as before; keys, ages, episodes and samples are new. "
        "The rate limiter counts these inserts like all others, and may have them wait. With --minari, a data set of "
        "Minari goes in, past the rate limiter; the table is made if it is not there.",
    )
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("path", metavar="FILE.npz", nargs="?", help="the file")
    parser.add_argument("--minari", metavar="DATASET", help="the id of a data set that is on this machine")
    parser.add_argument(
        "--wait",
        type=seconds(),
        default=10.0,
        metavar="S",
        help="give up when a single item has waited so many seconds (default: 10)",
    )
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints how many items went in. If not all did: returns 1, with the reason on stderr."""
    if (args.path is None) == (args.minari is None):
        raise ShmReplayError("expected a FILE.npz or --minari DATASET, one of the two")
    return import_file(args) if args.minari is None else import_dataset(args)


def import_file(args: argparse.Namespace) -> int:
    """As run(), of a file."""
    with open_items(args.path) as items, connected(args) as client:
        table = client.table(args.table)
        check_fits(items, table.spec, args.path)
        items.verify()
        evicted_before = table.info().evicted_for_room
        problem = None
        with Importer(shards_of(table), items, args.wait) as importer:
            progress = Progress("items are in", len(items))
            try:
                for _ in importer.insert_all():
                    progress.tell(importer.num_inserted)
            except ShmReplayError as error:
                problem = str(error)
            except KeyboardInterrupt:
                show_progress(f"{importer.num_inserted} of {counted(len(items), 'item')} went in")
                raise
        evicted = 0
        with contextlib.suppress(ShmReplayError):  # such as a dropped table, which `problem` says already
            evicted = table.info().evicted_for_room - evicted_before
    found = {"path": args.path, "items": len(items), "inserted": importer.num_inserted, "evicted_for_room": evicted}
    if problem is not None:
        print(f"shmreplay import: {problem}", file=sys.stderr)
    if args.json:
        print(to_json(found))
    else:
        room = f"; {counted(evicted, 'item')} evicted again for room" if evicted > 0 else ""
        verb = "is" if found["items"] == 1 else "are"
        share = f"{found['inserted']} of {counted(found['items'], 'item')}"
        print(f"{args.path}: {share} {verb} in table {args.table!r}{room}")
    return 1 if problem is not None else 0


def check_fits(items: ItemFile, table: Table, path: str) -> None:
    """Raises SignatureMismatch if the items do not fit the table, ShmReplayError if there are too many."""
    where = f"table {table.name!r}: items of {path} do not go in"
    if texts := table.sig.difference(items.table.sig):
        raise SignatureMismatch(f"{where}, they have other columns: {'; '.join(texts)}")
    if table.item != items.table.item and table.item is not None:
        raise SignatureMismatch(f"{where}: its item is {table.item!r}, theirs {items.table.item!r}")
    if len(items) > table.max_size:
        raise ShmReplayError(f"{where}: they are {len(items)}, more than its max_size, {table.max_size}")
