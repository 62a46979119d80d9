"""`shmreplay verify`: reads a checkpoint and every checksum in it. No daemon is needed."""

from __future__ import annotations

import argparse
import sys

from shmreplay.checkpoint_file import verify
from shmreplay.clients.cli.options import checkpoints_at
from shmreplay.errors import DamagedCheckpoint
from shmreplay.host_memory import show_bytes


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    parser = subparsers.add_parser("verify", help="check every byte of checkpoints")
    parser.add_argument("path", metavar="PATH", help="a checkpoint, or a directory of them")


def run(args: argparse.Namespace) -> int:
    """Prints one line a checkpoint. Returns 1 if one of them is damaged."""
    num_damaged = 0
    for path in checkpoints_at(args.path):
        try:
            found = verify(path)
        except DamagedCheckpoint as error:
            num_damaged += 1
            print(error, file=sys.stderr)
        else:
            print(f"{path}: whole, {show_bytes(found['num_bytes'])}")
    return 1 if num_damaged else 0
