"""`shmreplay pause`: pauses inserts, samples or both of a table."""

from __future__ import annotations

import argparse

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.clients.client import Client


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("pause", help="pause inserts, samples or both of a table, until resume")
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--inserts", action="store_true", help="only inserts, unless --samples is given, too")
    parser.add_argument("--samples", action="store_true", help="only samples, unless --inserts is given, too")
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Pauses, and prints what is paused now."""
    both = args.inserts == args.samples
    with connected(args) as client:
        client.pause(args.table, inserts=both or args.inserts, samples=both or args.samples, timeout_s=args.timeout)
        print_pauses(client, args.table, args.json)
    return 0


def print_pauses(client: Client, table: str, as_json: bool) -> None:
    """Prints which sides of the table are paused."""
    entry = client._known_tables()[0][table]
    paused = [side for side in ("inserts", "samples") if entry[f"paused_{side}"]]
    if as_json:
        print(to_json({"table": table, **{f"paused_{side}": side in paused for side in ("inserts", "samples")}}))
    elif paused:
        print(f"{table}: {' and '.join(paused)} are paused")
    else:
        print(f"{table}: inserts and samples go on")
