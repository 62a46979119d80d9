"""`shmreplay drop`: drops tables and frees their memory."""

from __future__ import annotations

import argparse

from shmreplay.base.checks import no_such_table
from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.options import add_daemon_options, add_yes_option, confirm, connected
from shmreplay.clients.cli.terminal.printing import counted


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("drop", help="drop tables with their items, and free their memory")
    parser.add_argument(
        "tables", metavar="TABLE", nargs="+", help="tables that share an arena must be dropped together"
    )
    add_yes_option(parser)
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Asks, drops them, and prints their names."""
    with connected(args) as client:
        found, _ = client._known_tables()
        for name in args.tables:
            if name not in found:
                raise no_such_table(name, found)
        # If an arena failed, the number of its items is unknown.
        sizes = {name: found[name].get("size") for name in args.tables}
        whats = [f"{name} ({'items unknown' if n is None else counted(n, 'item')})" for name, n in sizes.items()]
        confirm(f"Drop {', '.join(whats)}?", args.yes)
        client.drop_tables(args.tables, timeout_s=args.timeout)
    print(to_json({"dropped": args.tables}) if args.json else f"dropped: {', '.join(args.tables)}")
    return 0
