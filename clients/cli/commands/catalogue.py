"""The catalogue of commands: their groups, their modules and the parser of all of them."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable
from types import ModuleType

from shmreplay.protocol import package_version

# Each command is a module of this folder, with `add_parser` and `run`. A "-" in its name is a "_" in the module's.
GROUPS = {
    "try it": ("demo",),
    "look": ("top", "tables", "clients", "stats", "check"),
    "tables": ("pause", "resume", "drain", "set-ratio", "reset", "drop"),
    "items": ("peek", "inspect", "histogram", "export", "import"),
    "checkpoints": ("checkpoint", "restore", "verify"),
    "the machine": ("doctor", "plan", "purge", "service"),
    "your shell": ("completion",),
}
SUBCOMMANDS = tuple(name for group in GROUPS.values() for name in group)
_MODULES = {
    "import": "commands.import_items",  # `import` is a keyword of Python
    "top": "top.command",  # a folder of its own
}


def build_parser(names: Iterable[str] = SUBCOMMANDS) -> argparse.ArgumentParser:
    """The parser with these commands. It imports their modules."""
    parser = argparse.ArgumentParser(
        prog="shmreplay",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Tables of experience replay in shared memory. `shmreplay COMMAND -h` says more about a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"shmreplay {package_version()}")
    subparsers = parser.add_subparsers(
        dest="subcommand", metavar="COMMAND", required=True, prog=parser.prog, help=argparse.SUPPRESS
    )
    for name in names:
        load(name).add_parser(subparsers)
    parser.epilog = _list_groups({action.dest: action.help or "" for action in subparsers._choices_actions})
    return parser


def _list_groups(helps: dict[str, str]) -> str:
    width = max(map(len, helps), default=0)
    lines = []
    for group, names in GROUPS.items():
        listed = [f"  {name:<{width}}  {helps[name]}" for name in names if name in helps]
        lines += [f"{group}:", *listed, ""] if listed else []
    return "\n".join(lines).rstrip()


def load(name: str) -> ModuleType:
    """The module of a command, imported when it is first needed."""
    module = _MODULES.get(name, f"commands.{name.replace('-', '_')}")
    return importlib.import_module(f"shmreplay.clients.cli.{module}")
