"""The console script shmreplay: finds the subcommand, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from shmreplay.errors import ShmReplayError
from shmreplay.protocol import package_version
from shmreplay.reader_gone import outputs_without_reader, until_reader_goes

SUBCOMMANDS = ("demo", "tables", "stats", "plan", "checkpoint", "restore", "verify", "inspect", "doctor", "service",
    "top", "clients", "pause", "resume", "drain", "set-ratio", "reset", "drop")  # fmt: skip
EXPECTED_ERRORS = (ShmReplayError, ValueError, TypeError, OSError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand. Returns its exit code: 1 after an error that was printed, 130 after a Ctrl-C, 141 when
    whoever reads what it prints has gone.
    """
    try:
        return until_reader_goes(lambda: _run(arguments))
    except KeyboardInterrupt:  # also while subcommands are still being imported
        return 130


def _run(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="shmreplay", description="Tables of experience replay in shared memory.")
    parser.add_argument("--version", action="version", version=f"shmreplay {package_version()}")
    subparsers = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    modules = {name: _load(name) for name in SUBCOMMANDS}
    for module in modules.values():
        module.add_parser(subparsers)
    args = parser.parse_args(arguments)
    try:
        return int(modules[args.subcommand].run(args))
    except EXPECTED_ERRORS as error:
        if isinstance(error, BrokenPipeError) and outputs_without_reader():
            raise
        print(f"shmreplay {args.subcommand}: {error}", file=sys.stderr)
        return 1


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"shmreplay.clients.cli.{name.replace('-', '_')}")


if __name__ == "__main__":
    sys.exit(main())
