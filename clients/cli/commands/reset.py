"""`shmreplay reset`: empties a table."""

from __future__ import annotations

import argparse

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.figures.figures import Figures
from shmreplay.clients.cli.terminal.asking import add_yes_option, ask
from shmreplay.clients.cli.terminal.counted import counted
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    parser = subparsers.add_parser("reset", help="delete all items of a table and zero its counters")
    parser.add_argument("table", metavar="TABLE")
    add_yes_option(parser)
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Asks, empties it, and prints how many items it had."""
    with connected(args) as client:
        size = Figures.read(client.stats()).table(args.table).info["size"]
        ask(f"Delete {counted(size, 'item')}, all of table {args.table!r}?", args.yes)
        client.reset(args.table, timeout_s=args.timeout)
    if args.json:
        print(to_json({"table": args.table, "items": size}))
    else:
        print(f"{args.table}: {counted(size, 'item was deleted', 'items were deleted')}")
    return 0
