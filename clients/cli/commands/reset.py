"""`shmreplay reset`: deletes all items of a table."""

from __future__ import annotations

import argparse

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.figures.daemon_figures import Figures
from shmreplay.clients.cli.terminal.options import add_daemon_options, add_yes_option, confirm, connected
from shmreplay.clients.cli.terminal.printing import counted


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("reset", help="delete all items of a table and set its counters to zero")
    parser.add_argument("table", metavar="TABLE")
    add_yes_option(parser)
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Asks, resets the table, and prints how many items it had."""
    with connected(args) as client:
        size = Figures.read(client.stats()).table(args.table).info["size"]
        confirm(f"Delete {counted(size, 'item')}, all of table {args.table!r}?", args.yes)
        client.reset(args.table, timeout_s=args.timeout)
    if args.json:
        print(to_json({"table": args.table, "items": size}))
    else:
        print(f"{args.table}: {counted(size, 'item was deleted', 'items were deleted')}")
    return 0
