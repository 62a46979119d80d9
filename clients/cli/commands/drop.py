"""`shmreplay drop`: drops tables and gives their memory back."""

from __future__ import annotations

import argparse

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.asking import add_yes_option, ask
from shmreplay.clients.cli.terminal.counted import counted
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.errors import TableNotFound


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    parser = subparsers.add_parser("drop", help="drop tables with their items, and give their memory back")
    parser.add_argument("tables", metavar="TABLE", nargs="+", help="tables that share an arena go together")
    add_yes_option(parser)
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Asks, drops them, and prints their names."""
    with connected(args) as client:
        found = client.tables()
        for name in args.tables:
            if name not in found:
                raise TableNotFound(f"there is no table {name!r}; there are: {', '.join(sorted(found)) or 'none'}")
        # What an arena that failed has, nobody can say.
        sizes = {name: found[name].get("size") for name in args.tables}
        whats = [f"{name} ({'items unknown' if n is None else counted(n, 'item')})" for name, n in sizes.items()]
        ask(f"Drop {', '.join(whats)}?", args.yes)
        client.drop_tables(args.tables, timeout_s=args.timeout)
    print(to_json({"dropped": args.tables}) if args.json else f"dropped: {', '.join(args.tables)}")
    return 0
