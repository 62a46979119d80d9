"""`shmreplay checkpoint`: has a daemon save its tables."""

from __future__ import annotations

import argparse

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.clients.cli.terminal.printing import show_progress


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    add_daemon_options(subparsers.add_parser("checkpoint", help="save all tables of a daemon while they are in use"))


def run(args: argparse.Namespace) -> int:
    """Prints the path of the new checkpoint. Progress goes to stderr."""
    with connected(args) as client:
        path = client.checkpoint(on_progress=show_progress)
    print(to_json({"path": path}) if args.json else path)
    return 0
