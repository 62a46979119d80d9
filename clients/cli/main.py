"""The console script shmreplay: runs a command, and turns its errors into one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shmreplay.base.reader_gone import outputs_without_reader, until_reader_goes
from shmreplay.clients.cli.commands.catalogue import SUBCOMMANDS, build_parser, load
from shmreplay.errors import EXPECTED_ERRORS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit code: 1 after a printed error, 130 after a Ctrl-C, 141 after a closed pipe."""
    try:
        return until_reader_goes(lambda: _run(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # also while commands are being imported
        return 130


def _run(arguments: Sequence[str]) -> int:
    # To import the modules of all commands takes longer than most commands take.
    named = arguments[:1] if arguments and arguments[0] in SUBCOMMANDS else SUBCOMMANDS
    args = build_parser(named).parse_args(arguments)
    try:
        return int(load(args.subcommand).run(args))
    except EXPECTED_ERRORS as error:
        if isinstance(error, BrokenPipeError) and outputs_without_reader():
            raise
        print(f"shmreplay {args.subcommand}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
