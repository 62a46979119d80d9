"""`shmreplay verify`: reads checkpoints and checks every checksum. It needs no daemon."""

from __future__ import annotations

import argparse
import sys

from shmreplay.base.host_memory import show_bytes
from shmreplay.base.json_values import to_json
from shmreplay.checkpoints.checkpoint_file import verify
from shmreplay.clients.cli.terminal.options import checkpoints_at
from shmreplay.errors import DamagedCheckpoint


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("verify", help="check every byte of checkpoints")
    parser.add_argument("path", metavar="PATH", help="a checkpoint, or a directory of them")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Prints one line a checkpoint. Returns 1 if one of them is damaged."""
    found: list[dict[str, object]] = []
    for path in checkpoints_at(args.path):
        try:
            num_bytes = verify(path)["num_bytes"]
        except DamagedCheckpoint as error:
            found.append({"path": path, "damage": str(error)})
            print(error, file=sys.stderr)
        else:
            found.append({"path": path, "damage": None, "bytes": num_bytes})
            if not args.json:
                print(f"{path}: whole, {show_bytes(num_bytes)}")
    if args.json:
        print(to_json(found))
    return 1 if any(one["damage"] for one in found) else 0
