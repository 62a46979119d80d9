"""The console script shmreplay: finds the subcommand, and turns errors into one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shmreplay.base.reader_gone import outputs_without_reader, until_reader_goes
from shmreplay.clients.cli.commands.catalogue import SUBCOMMANDS, build_parser, load
from shmreplay.errors import EXPECTED_ERRORS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand. Returns its exit code: 1 after an error that was printed, 130 after a Ctrl-C, 141 when
    whoever reads what it prints has gone.
    """
    try:
        return until_reader_goes(lambda: _run(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # also while subcommands are still being imported
        return 130


def _run(arguments: Sequence[str]) -> int:
    # The others' modules take longer to import than most subcommands do.
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
