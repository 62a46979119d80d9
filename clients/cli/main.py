"""The console script shmreplay: finds the subcommand, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

from shmreplay.errors import EXPECTED_ERRORS
from shmreplay.protocol import package_version
from shmreplay.reader_gone import outputs_without_reader, until_reader_goes

# Each is a module beside this one, with `add_parser` and `run`; "-" stands for "_" there.
GROUPS = {
    "try it": ("demo",),
    "look": ("top", "tables", "clients", "stats", "check"),
    "tables": ("pause", "resume", "drain", "set-ratio", "reset", "drop"),
    "items": ("peek", "inspect", "histogram", "export", "import"),
    "checkpoints": ("checkpoint", "restore", "verify"),
    "the machine": ("doctor", "plan", "service"),
    "your shell": ("completion",),
}
SUBCOMMANDS = tuple(name for group in GROUPS.values() for name in group)
_MODULES = {"import": "import_items"}  # names that Python keeps to itself


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand. Returns its exit code: 1 after an error that was printed, 130 after a Ctrl-C, 141 when
    whoever reads what it prints has gone.
    """
    try:
        return until_reader_goes(lambda: _run(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # also while subcommands are still being imported
        return 130


def build_parser(names: Iterable[str] = SUBCOMMANDS) -> argparse.ArgumentParser:
    """The parser with these subcommands, whose modules it imports."""
    parser = argparse.ArgumentParser(
        prog="shmreplay",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Tables of experience replay in shared memory. `shmreplay COMMAND -h` tells more of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"shmreplay {package_version()}")
    subparsers = parser.add_subparsers(
        dest="subcommand", metavar="COMMAND", required=True, prog=parser.prog, help=argparse.SUPPRESS
    )
    for name in names:
        _load(name).add_parser(subparsers)
    parser.epilog = _list_groups({action.dest: action.help or "" for action in subparsers._choices_actions})
    return parser


def _run(arguments: Sequence[str]) -> int:
    # The others' modules take longer to import than most subcommands do.
    named = arguments[:1] if arguments and arguments[0] in SUBCOMMANDS else SUBCOMMANDS
    args = build_parser(named).parse_args(arguments)
    try:
        return int(_load(args.subcommand).run(args))
    except EXPECTED_ERRORS as error:
        if isinstance(error, BrokenPipeError) and outputs_without_reader():
            raise
        print(f"shmreplay {args.subcommand}: {error}", file=sys.stderr)
        return 1


def _list_groups(helps: dict[str, str]) -> str:
    width = max(map(len, helps), default=0)
    lines = []
    for group, names in GROUPS.items():
        listed = [f"  {name:<{width}}  {helps[name]}" for name in names if name in helps]
        lines += [f"{group}:", *listed, ""] if listed else []
    return "\n".join(lines).rstrip()


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"shmreplay.clients.cli.{_MODULES.get(name, name.replace('-', '_'))}")


if __name__ == "__main__":
    sys.exit(main())
