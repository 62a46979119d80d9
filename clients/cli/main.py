"""The console script shmreplay: runs a command, and turns its errors into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from shmreplay.base.checks import known_instead
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
    if arguments and not arguments[0].startswith("-") and arguments[0] not in SUBCOMMANDS:
        meant = known_instead(arguments[0], SUBCOMMANDS, "shmreplay")
        build_parser(()).error(f"there is no command {arguments[0]!r}; {meant}")
    named = arguments[:1] if arguments and arguments[0] in SUBCOMMANDS else SUBCOMMANDS
    args = build_parser(named).parse_args(arguments)
    try:
        return int(load(args.subcommand).run(args))
    except EXPECTED_ERRORS as error:
        if isinstance(error, BrokenPipeError) and outputs_without_reader():
            raise
        print(f"shmreplay {args.subcommand}: {_in_words(error)}", file=sys.stderr)
        return 1


def _in_words(error: Exception) -> str:
    """The text of an error. That of a failed system call names the file first, and says why instead of a number."""
    if not isinstance(error, OSError) or error.errno is None or not error.strerror:
        return str(error)
    names = (error.filename, error.filename2)
    files = " to ".join(os.fsdecode(name) for name in names if isinstance(name, (str, bytes)))
    hint = "; run it as a user who may" if error.errno in (errno.EACCES, errno.EPERM) else ""
    return f"{files}: {error.strerror}{hint}" if files else f"{error.strerror}{hint}"


if __name__ == "__main__":
    sys.exit(main())
