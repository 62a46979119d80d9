"""`shmreplay check`: checks the whole index of an arena for contradictions, under its lock."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.figures.daemon_figures import arenas_of
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.clients.cli.terminal.printing import counted
from shmreplay.clients.client import Client
from shmreplay.columns.specs import MissingPackage
from shmreplay.errors import EXPECTED_ERRORS, SegmentFailed


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "check",
        help="check the index of arenas for contradictions",
        description="Checks the whole index of an arena under its lock. Calls that use its tables wait meanwhile; the "
        "output says how long that was.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("table", nargs="?", metavar="TABLE", help="the arena of this table")
    which.add_argument("--all", action="store_true", help="every arena of the daemon, one after the other")
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints one line an arena, and one a contradiction. Returns 1 if there is one, or an arena could not be checked.

    Raises TableNotFound if there is no such table.
    """
    with connected(args) as client:
        found = {arena: _check(client, name, args.timeout) for arena, name in _arenas(client, args.table).items()}
    if args.json:
        print(to_json(found))
    for arena, outcome in found.items():
        told = outcome["problems"] if outcome["error"] is None else [outcome["error"]]
        for problem in told:
            print(f"shmreplay check: arena {arena!r}: {problem}", file=sys.stderr)
        if not args.json:
            print(f"arena {arena!r}: {_state(outcome)}; the check took {outcome['seconds'] * 1000:.1f} ms")
    if not found and not args.json:
        print("no tables")
    return 1 if any(outcome["problems"] or outcome["error"] for outcome in found.values()) else 0


def _arenas(client: Client, only: str | None) -> dict[str, str]:
    """Each arena that is to be checked, with one of its tables."""
    found: dict[str, str] = {}
    for name, entry in sorted(client._known_tables()[0].items()):
        if only is None or name == only:
            parts = [part.name for part in entry["spec"].parts] if "spec" in entry else [name]
            for part, arena in zip(parts, arenas_of(entry), strict=True):
                found.setdefault(arena, part)
    if only is not None and not found:
        client.table(only)  # raises an error that lists the tables
    return found


def _check(client: Client, name: str, timeout_s: float) -> dict[str, Any]:
    """The contradictions in the arena of a table, and how long the check took, with the wait for the lock.

    `error` says why it could not be checked, such as a lock that is held for too long. Other arenas are still checked.
    """
    begun = time.monotonic()
    problems, failure = [], None
    try:
        problems = client._attach(name).arena.check(timeout_s)
    except SegmentFailed as error:
        problems = [str(error)]
    except (*EXPECTED_ERRORS, MissingPackage) as error:
        failure = str(error)
    return {"problems": problems, "error": failure, "seconds": time.monotonic() - begun}


def _state(outcome: dict[str, Any]) -> str:
    if outcome["error"] is not None:
        return "not checked"
    return counted(len(outcome["problems"]), "contradiction") if outcome["problems"] else "whole"
