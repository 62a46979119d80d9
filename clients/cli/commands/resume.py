"""`shmreplay resume`: ends a pause."""

from __future__ import annotations

import argparse

from shmreplay.clients.cli.commands.pause import print_pauses
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("resume", help="resume paused inserts and samples of a table")
    parser.add_argument("table", metavar="TABLE")
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Ends the pauses of both sides, and prints what is paused now."""
    with connected(args) as client:
        client.resume(args.table, timeout_s=args.timeout)
        print_pauses(client, args.table, args.json)
    return 0
