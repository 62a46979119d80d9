"""Asking before what cannot be undone."""

from __future__ import annotations

import argparse
import sys

from shmreplay.errors import ShmReplayError


def add_yes_option(parser: argparse.ArgumentParser) -> None:
    """The option that answers beforehand."""
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where no terminal can be asked")


def ask(question: str, is_answered: bool) -> None:
    """Returns if it is to be done. Raises ShmReplayError if not, or if nobody is there to be asked."""
    if is_answered:
        return
    if not sys.stdin.isatty():
        raise ShmReplayError(f"{question} Nobody can be asked, for the input is no terminal: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ShmReplayError("nothing was done")
