"""Options and output that several subcommands share."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shmreplay.checkpoints.checkpoint_directory import find_checkpoints
from shmreplay.clients.client import Client, connect
from shmreplay.errors import CheckpointFailed

FOR_EVER_S = 1e9  # decades; what the system's clocks can count from now
KEY_BOUND = 2**63


def add_daemon_options(parser: argparse.ArgumentParser) -> None:
    """The options of every subcommand that talks to a daemon."""
    # shmreplayd calls it --socket, connect() an address; both programs take both.
    parser.add_argument(
        "--address", "--socket", metavar="PATH", help="the daemon's socket (default: where shmreplayd listens)"
    )
    parser.add_argument(
        "--timeout",
        type=seconds(),
        default=2.0,
        metavar="S",
        help="wait so long for a daemon, or for the lock of an arena (default: 2)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def connected(args: argparse.Namespace) -> Client:
    """A client of the daemon that the options name. It waits for an arena's lock as long as for the daemon."""
    client = connect(args.address, args.timeout)
    client.lock_timeout_s = args.timeout
    return client


def positive(text: str) -> int:
    """An argument that is a count of at least 1. Raises ArgumentTypeError for what is none."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return number


def seconds(least: float = 0.0, most: float = math.inf) -> Callable[[str], float]:
    """The type of an argument that is so many seconds; it raises ArgumentTypeError for what is none of these.

    More than FOR_EVER_S are as many.
    """
    expected = f"seconds >= {least:g}" if most == math.inf else f"{least:g} to {most:g} seconds"

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r}; expected {expected}")
        return min(number, FOR_EVER_S)

    return read


def key(text: str) -> int:
    """An argument that is the key of an item. Raises ArgumentTypeError for what can be none."""
    try:
        number = int(text)
    except ValueError:
        number = KEY_BOUND
    if not -KEY_BOUND <= number < KEY_BOUND:
        raise argparse.ArgumentTypeError(f"{text!r} is no key; expected a whole number below 2**63")
    return number


def checkpoints_at(path: str) -> list[str]:
    """The checkpoint that the path names, or those of the directory, newest first. Raises CheckpointFailed for none."""
    paths = find_checkpoints(path) if os.path.isdir(path) else [path]
    if not paths:
        raise CheckpointFailed(f"there is no checkpoint in {path}")
    return paths


def show_progress(text: str) -> None:
    """Tells on stderr how far a request is."""
    print(text, file=sys.stderr)


def arenas_of(entry: Mapping[str, Any]) -> list[str]:
    """The arenas of an entry of `client.tables()`: one, or one for each shard."""
    names = entry["arena"]
    return [names] if isinstance(names, str) else list(names)


def format_rows(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain text table: the first column to the left, the others, which are numbers, to the right."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
