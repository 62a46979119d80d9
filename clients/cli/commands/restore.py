"""`shmreplay restore`: lets a daemon make the tables of a checkpoint anew."""

from __future__ import annotations

import argparse
import sys

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected, show_progress


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    parser = subparsers.add_parser("restore", help="make the tables of a checkpoint anew in a daemon")
    parser.add_argument(
        "path", metavar="PATH", help="a checkpoint, or a directory of which the newest whole one is taken"
    )
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints which checkpoint was restored and its tables; what is not as it was goes to stderr."""
    with connected(args) as client:
        found = client.restore(args.path, on_progress=show_progress)
    for note in found["notes"]:
        print(f"shmreplay restore: {note}", file=sys.stderr)
    print(to_json(found) if args.json else f"{found['path']}: {', '.join(found['tables']) or 'no tables'}")
    return 0
