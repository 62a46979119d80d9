"""The grammar of a command line, read from its argparse parser: for completion in shells, and for docs/cli.md."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Option:
    """A flag, or a positional argument.

    Attributes:
        flags: as the user writes them; empty for a positional argument.
        metavar: the name of its value; "" for a flag without a value.
        choices: the allowed values, if they are limited.
        help: one sentence.
        repeats: whether several values may follow.
        group: the heading that it is listed under; "" for the first one.
        is_needed: whether it must be given.
    """

    flags: tuple[str, ...]
    metavar: str
    choices: tuple[str, ...]
    help: str
    repeats: bool
    group: str
    is_needed: bool


@dataclass(frozen=True)
class Command:
    """A program, or a command of one."""

    name: str
    usage: str
    help: str
    description: str
    arguments: tuple[Option, ...]
    options: tuple[Option, ...]
    commands: tuple[Command, ...] = field(default=())


def read_parser(parser: argparse.ArgumentParser, help: str = "") -> Command:
    """Everything that a parser accepts, its commands included, without -h, which all accept."""
    # argparse has no public way to list what a parser accepts. If its internals change, tests of completion and of
    # docs/cli.md fail.
    found: list[Option] = []
    commands: list[Command] = []
    for group in parser._action_groups:
        title = "" if group.title in (*_first_titles(), None) else str(group.title)
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
                commands += [read_parser(choice, helps[name]) for name, choice in action.choices.items()]
            elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                found.append(_option(parser, action, title))
    return Command(
        parser.prog,
        _usage(parser, found, bool(commands)),
        help,
        parser.description or "",
        tuple(option for option in found if not option.flags),
        tuple(option for option in found if option.flags),
        tuple(commands),
    )


def _first_titles() -> tuple[str, ...]:
    """The titles of the groups that argparse makes by itself. They differ between versions."""
    return tuple(str(group.title) for group in argparse.ArgumentParser(add_help=False)._action_groups)


def _option(parser: argparse.ArgumentParser, action: argparse.Action, group: str) -> Option:
    takes_value = action.nargs != 0
    choices = tuple(map(str, action.choices or ())) if takes_value else ()
    metavar = action.metavar if isinstance(action.metavar, str) else "|".join(choices) or action.dest.upper()
    help_text = parser._get_formatter()._expand_help(action) if action.help else ""
    return Option(
        tuple(action.option_strings),
        metavar if takes_value else "",
        choices,
        help_text,
        action.nargs in ("*", "+"),
        group,
        action.required,
    )


def _usage(parser: argparse.ArgumentParser, options: list[Option], has_commands: bool) -> str:
    """The usage in one line: required options, then arguments. If the parser has its own usage, that one."""
    if parser.usage is not None and parser.usage != argparse.SUPPRESS:
        return "\n".join(line.strip() for line in (parser.usage % {"prog": parser.prog}).splitlines())
    parts = [parser.prog, "[options]"]
    parts += [f"{option.flags[-1]} {option.metavar}" for option in options if option.flags and option.is_needed]
    for option in options:
        if not option.flags:
            text = option.metavar + (f" [{option.metavar} ...]" if option.repeats else "")
            parts.append(text if option.is_needed else f"[{text}]")
    return " ".join([*parts, *(["ACTION ..."] if has_commands else [])])
