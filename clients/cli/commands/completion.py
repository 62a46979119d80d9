"""`shmreplay completion`: prints scripts that complete command lines in shells. They ask the daemon for table names."""

from __future__ import annotations

import argparse
import contextlib
import shlex

from shmreplay.clients.cli.commands.catalogue import build_parser
from shmreplay.clients.cli.terminal.grammar import Command, Option, read_parser
from shmreplay.clients.client import connect
from shmreplay.errors import ShmReplayError

SHELLS = ("bash", "zsh", "fish")
ASK_TIMEOUT_S = 0.5  # somebody has pressed a key and waits
_FILES = ("PATH", "FILE", "DIR", "CONFIG")  # metavars that begin so stand for a file


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script for your shell that completes command lines",
        description='bash: eval "$(shmreplay completion bash)" in ~/.bashrc. zsh: the same with zsh in ~/.zshrc, '
        "after compinit. fish: shmreplay completion fish > ~/.config/fish/completions/shmreplay.fish",
    )
    parser.add_argument("shell", choices=(*SHELLS, "tables"), metavar="|".join(SHELLS), help="the shell")
    parser.add_argument("--address", "--socket", metavar="PATH", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Prints the script. With `tables`, which the scripts call: prints the names of the tables, or nothing."""
    if args.shell == "tables":
        with contextlib.suppress(ShmReplayError, OSError, ValueError), connect(args.address, ASK_TIMEOUT_S) as client:
            print("\n".join(sorted(client._known_tables()[0])))
        return 0
    program = read_parser(build_parser())
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](program))
    return 0


def bash(program: Command) -> str:
    """The script for bash."""
    name = program.name
    cases = "\n".join(_bash_case(command) for command in _leaves(program))
    names = " ".join(command.name.removeprefix(f"{name} ") for command in program.commands)
    nested = "\n".join(
        f"    {shlex.quote(command.name.removeprefix(f'{name} '))}) nested=1 ;;"
        for command in program.commands
        if command.commands
    )
    actions = "\n".join(
        f"    {shlex.quote(command.name.removeprefix(f'{name} '))}) words={shlex.quote(_last_names(command))} ;;"
        for command in program.commands
        if command.commands
    )
    return f"""\
_{name}() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command= nested= place=0 address= index word words= with_value= places= choices=
  local -a places_of
  COMPREPLY=()
  for (( index = 1; index < COMP_CWORD; index++ )); do
    word="${{COMP_WORDS[index]}}"
    if [ -z "$command" ]; then
      case "$word" in -*) continue ;; esac
      command="$word"
      case "$command" in
{nested or "    -) ;;"}
      esac
    elif [ -n "$nested" ]; then
      case "$word" in -*) continue ;; esac
      command="$command $word" nested=
    fi
  done
  if [ -z "$command" ]; then
    COMPREPLY=( $(compgen -W {shlex.quote(f"{names} --help --version")} -- "$current") )
    return
  fi
  if [ -n "$nested" ]; then
    case "$command" in
{actions or "    -) ;;"}
    esac
    COMPREPLY=( $(compgen -W "$words --help" -- "$current") )
    return
  fi
  case "$command" in
{cases}
  *) return ;;
  esac
  local skip=0 begun=0 parts=( $command )
  for (( index = 1; index < COMP_CWORD; index++ )); do
    word="${{COMP_WORDS[index]}}"
    if [ "$skip" = 1 ]; then skip=0; continue; fi
    case "$word" in
    --address|--socket) address="${{COMP_WORDS[index+1]}}" ;;
    esac
    case " $with_value " in *" $word "*) skip=1; continue ;; esac
    case "$word" in
    -*) ;;
    *) if [ "$begun" -lt "${{#parts[@]}}" ]; then begun=$((begun + 1)); else place=$((place + 1)); fi ;;
    esac
  done
  local kind=
  case " $with_value " in
  *" $previous "*)
    case "$command $previous" in
{_bash_values(program)}
    *) kind=none ;;
    esac ;;
  esac
  if [ -z "$kind" ]; then
    case "$current" in
    -*) COMPREPLY=( $(compgen -W "$words" -- "$current") ); return ;;
    esac
    places_of=( $places )
    if [ "$place" -lt "${{#places_of[@]}}" ]; then
      kind="${{places_of[$place]}}"
    else
      case "$places" in *+) kind="${{places_of[${{#places_of[@]}}-1]}}" ;; esac
    fi
    kind="${{kind%+}}"
  fi
  case "$kind" in
  tables)
    words="$({name} completion tables ${{address:+--address "$address"}} 2>/dev/null)"
    COMPREPLY=( $(compgen -W "$words" -- "$current") ) ;;
  files) compopt -o filenames 2>/dev/null; COMPREPLY=( $(compgen -f -- "$current") ) ;;
  =*) choices="${{kind#=}}"; COMPREPLY=( $(compgen -W "${{choices//|/ }}" -- "$current") ) ;;
  esac
}}
complete -F _{name} {name}"""


def zsh(program: Command) -> str:
    """The script for zsh, which can run that of bash."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash(program)}"


def fish(program: Command) -> str:
    """The script for fish."""
    name = program.name
    lines = [
        f"function __{name}_tables",
        "    set -l words (commandline -opc)",
        "    set -l address",
        "    for i in (seq (count $words))",
        "        contains -- $words[$i] --address --socket; and set address --address $words[(math $i + 1)]",
        "    end",
        f"    {name} completion tables $address 2>/dev/null",
        "end",
        f"complete -c {name} -f",
    ]
    for command in program.commands:
        word = _last_name(command)
        lines.append(f"complete -c {name} -n __fish_use_subcommand -a {word} -d {_fish_quote(command.help)}")
    for command in program.commands:
        seen = f"'__fish_seen_subcommand_from {_last_name(command)}'"
        lines += [
            f"complete -c {name} -n {seen} -a {_last_name(action)} -d {_fish_quote(action.help)}"
            for action in command.commands
        ]
        for option in (option for leaf in _leaves(command) for option in (*leaf.options, *leaf.arguments)):
            lines.append(f"complete -c {name} -n {seen}{_fish_option(option, name)}")
    return "\n".join(lines)


def _fish_option(option: Option, name: str) -> str:
    kind = _kind(option)
    flags = "".join(f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in option.flags)
    values = ""
    if kind == "tables":
        values = f" -a '(__{name}_tables)'"
    elif kind == "files":
        values = " -F"
    elif kind.startswith("="):
        values = f" -a {_fish_quote(kind[1:].replace('|', ' '))}"
    needs = " -r" if option.flags and option.metavar else ""
    return f"{flags}{needs}{values} -d {_fish_quote(option.help)}"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _leaves(command: Command) -> list[Command]:
    """The commands without commands of their own."""
    if not command.commands:
        return [command]
    return [leaf for part in command.commands for leaf in _leaves(part)]


def _bash_case(command: Command) -> str:
    words = " ".join(flag for option in command.options for flag in option.flags)
    with_value = " ".join(flag for option in command.options if option.metavar for flag in option.flags)
    places = " ".join(_kind(option) + ("+" if option.repeats else "") for option in command.arguments)
    quoted = shlex.quote(command.name.partition(" ")[2])
    return (
        f"  {quoted}) words={shlex.quote(f'{words} --help')} with_value={shlex.quote(with_value)} "
        f"places={shlex.quote(places)} ;;"
    )


def _bash_values(program: Command) -> str:
    lines = []
    for command in _leaves(program):
        for option in command.options:
            if option.metavar and (kind := _kind(option)) != "none":
                patterns = "|".join(shlex.quote(f"{command.name.partition(' ')[2]} {flag}") for flag in option.flags)
                lines.append(f"    {patterns}) kind={shlex.quote(kind)} ;;")
    return "\n".join(lines)


def _kind(option: Option) -> str:
    """The kind of its value: `tables`, `files`, `=` with the choices, or `none`."""
    if option.choices:
        return "=" + "|".join(choice for choice in option.choices if choice in option.metavar.split("|"))
    if option.metavar == "TABLE":
        return "tables"
    return "files" if option.metavar.startswith(_FILES) else "none"


def _last_name(command: Command) -> str:
    return command.name.rpartition(" ")[2]


def _last_names(command: Command) -> str:
    return " ".join(_last_name(part) for part in command.commands)
