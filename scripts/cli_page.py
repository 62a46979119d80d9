"""Writes the lower part of docs/cli.md from the parsers of both programs. `--check` only says whether it is current."""

from __future__ import annotations

import pathlib
import sys

from shmreplay.clients.cli.commands.catalogue import GROUPS, build_parser
from shmreplay.clients.cli.terminal.grammar import Command, Option, read_parser
from shmreplay.daemon.config.configuration import build_parser as build_daemon_parser

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "cli.md"

MARK = "<!-- All below is written by `make cli-page`, from the code. -->\n"
OF_A_DAEMON = ("--address", "--timeout", "--json")  # options of every command that talks to a daemon


def page(before: str) -> str:
    """The new page, with the text above the mark taken from the page before."""
    program, daemon = read_parser(build_parser()), read_parser(build_daemon_parser())
    by_name = {command.name.partition(" ")[2]: command for command in program.commands}
    parts = [before.partition(MARK)[0] + MARK]
    for group, names in GROUPS.items():
        parts.append(f"## {group[0].upper()}{group[1:]}\n")
        parts += [part for name in names for part in _sections(by_name[name])]
    parts.append("## The daemon\n")
    parts += _sections(daemon)
    return "\n".join(parts)


def _sections(command: Command) -> list[str]:
    if command.commands:
        return [section for part in command.commands for section in _sections(part)]
    lines = [f"### {command.name}", "", *(f"    {line}" for line in command.usage.splitlines()), ""]
    if text := command.description or command.help:
        lines += [f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}", ""]
    takes_daemon = all(any(flag in option.flags for option in command.options) for flag in OF_A_DAEMON)
    own = [option for option in command.options if not (takes_daemon and set(OF_A_DAEMON) & set(option.flags))]
    if listed := [*(option for option in command.arguments if option.help), *own]:
        lines += ["| | |", "|---|---|", *(f"| {_written(option)} | {_cell(option.help)} |" for option in listed), ""]
    if takes_daemon:
        lines += [f"{'And' if listed else 'It takes'} {', '.join(f'`{flag}`' for flag in OF_A_DAEMON)}.", ""]
    return ["\n".join(lines)]


def _written(option: Option) -> str:
    names = ", ".join(f"`{flag}`" for flag in option.flags)
    value = f"`{option.metavar}`" if option.metavar else ""
    return _cell(f"{names} {value}".strip())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    found = PAGE.read_text(encoding="utf-8")
    wanted = page(found)
    if arguments == ["--check"]:
        is_current = found == wanted
        if not is_current:
            print("docs/cli.md is not as the code is: run `make cli-page`", file=sys.stderr)
        return 0 if is_current else 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
