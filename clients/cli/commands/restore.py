"""`shmreplay restore`: has a daemon restore the tables of a checkpoint."""

from __future__ import annotations

import argparse
import sys

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.clients.cli.terminal.printing import show_progress


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("restore", help="restore the tables of a checkpoint in a daemon")
    parser.add_argument(
        "path", metavar="PATH", help="a checkpoint, or a directory, whose newest undamaged checkpoint is restored"
    )
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints which checkpoint was restored, and its tables. Differences from what was saved go to stderr."""
    with connected(args) as client:
        found = client.restore(args.path, on_progress=show_progress)
    for note in found["notes"]:
        print(f"shmreplay restore: {note}", file=sys.stderr)
    print(to_json(found) if args.json else f"{found['path']}: {', '.join(found['tables']) or 'no tables'}")
    return 0
