"""`shmreplay inspect`: what a checkpoint holds. No daemon is needed."""

from __future__ import annotations

import argparse
import datetime
import json

from shmreplay.checkpoint_file import verify
from shmreplay.clients.cli.options import checkpoints_at, format_rows
from shmreplay.host_memory import show_bytes

FIGURES = ("size", "inserts", "samples")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    parser = subparsers.add_parser("inspect", help="show what a checkpoint holds")
    parser.add_argument("path", metavar="PATH", help="a checkpoint, or a directory of which the newest is shown")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Reads all of it, then prints where it comes from and one line a table."""
    path = checkpoints_at(args.path)[0]
    found = verify(path)
    tables = [
        {"table": table["name"], "arena": state["arena"], **{figure: table[figure] for figure in FIGURES}}
        for state in found["states"]
        for table in state["tables"]
    ]
    created = datetime.datetime.fromtimestamp(found["created"], datetime.timezone.utc).isoformat(timespec="seconds")
    if args.json:
        names = ("label", "package", "layout_version", "num_bytes")
        print(
            json.dumps({"path": path, "created": created, **{n: found[n] for n in names}, "tables": tables}, indent=2)
        )
        return 0
    print(f"{path}: {show_bytes(found['num_bytes'])}, of {created}, by shmreplay {found['package']}")
    if tables:
        rows = [(row["table"], *(row[figure] for figure in FIGURES), row["arena"]) for row in tables]
        print(format_rows(("table", *FIGURES, "arena"), rows))
    return 0
