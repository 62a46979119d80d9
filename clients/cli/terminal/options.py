"""Options that several commands share, and what they stand for: a client, a number, a yes, checkpoints."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable

from shmreplay.checkpoints.checkpoint_directory import find_checkpoints
from shmreplay.clients.client import Client, connect
from shmreplay.errors import CheckpointFailed, CheckpointNotFound, ShmReplayError

FOR_EVER_S = 1e9  # decades; the system's clocks can count that far from now
KEY_BOUND = 2**63


def add_daemon_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that talks to a daemon."""
    # shmreplayd calls it --socket, connect() an address. Both programs accept both.
    parser.add_argument(
        "--address", "--socket", metavar="PATH", help="the daemon's socket (default: where shmreplayd listens)"
    )
    parser.add_argument(
        "--timeout",
        type=seconds(),
        default=2.0,
        metavar="S",
        help="seconds to wait for a daemon, or for an arena's lock (default: 2)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def connected(args: argparse.Namespace) -> Client:
    """A client of the daemon that the options name. It waits for an arena's lock as long as for the daemon."""
    client = connect(args.address, args.timeout)
    client.lock_timeout_s = args.timeout
    client.no_table_advice = ""  # it is about Python
    return client


def add_yes_option(parser: argparse.ArgumentParser) -> None:
    """The option that answers the question of `confirm` in advance."""
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where stdin is not a terminal")


def confirm(question: str, is_answered: bool) -> None:
    """Asks before something that cannot be undone; `is_answered` if --yes was given.

    Raises:
        ShmReplayError: the answer is no, or stdin is not a terminal.
    """
    if is_answered:
        return
    if not sys.stdin.isatty():
        raise ShmReplayError(f"{question} Nobody can be asked, since stdin is not a terminal: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ShmReplayError("nothing was done")


def positive(text: str) -> int:
    """The type of an argument that is a count of at least 1. Raises ArgumentTypeError for anything else."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def seconds(least: float = 0.0, most: float = math.inf) -> Callable[[str], float]:
    """The type of an argument that is a number of seconds; it raises ArgumentTypeError for anything else.

    Numbers above FOR_EVER_S become FOR_EVER_S.
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
    """The type of an argument that is an item's key. Raises ArgumentTypeError for what cannot be one."""
    try:
        number = int(text)
    except ValueError:
        number = KEY_BOUND
    if not -KEY_BOUND <= number < KEY_BOUND:
        raise argparse.ArgumentTypeError(f"{text!r} is not a key; expected a whole number below 2**63")
    return number


def checkpoints_at(path: str) -> list[str]:
    """The checkpoint that a PATH names, or those in that directory, newest first.

    Raises:
        CheckpointNotFound: there is no such path.
        CheckpointFailed: the directory has none.
    """
    if not os.path.lexists(path):
        raise CheckpointNotFound(f"there is no checkpoint {path}: no such file or directory")
    paths = find_checkpoints(path) if os.path.isdir(path) else [path]
    if not paths:
        raise CheckpointFailed(f"there is no checkpoint in {path}")
    return paths
