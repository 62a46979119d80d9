"""`shmreplay clients`: lists the attached processes and what they do."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.figures.daemon_figures import Figures, ProcessFigures, Wait
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.clients.cli.terminal.printing import format_rows, plain

FIGURES = ("inserts", "samples", "updates", "open_streams", "pinned_chunks")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    add_daemon_options(subparsers.add_parser("clients", help="list the processes that are attached to a daemon"))


def run(args: argparse.Namespace) -> int:
    """Prints one line a process."""
    with connected(args) as client:
        processes = Figures.read(client.stats()).processes
    if args.json:
        print(to_json([plain_process(process) for process in processes]))
    elif processes:
        rows = [
            (
                f"{process.pid} {plain(process.name)}".rstrip(),
                process.role,
                *(getattr(process, figure) for figure in FIGURES),
                ", ".join(sorted({*process.writes, *process.reads})) or "-",
                describe_waits(process.waits),
            )
            for process in processes
        ]
        print(format_rows(("pid", "role", *FIGURES, "tables", "waits"), rows))
    else:
        print("no processes are attached")
    return 0


def plain_process(process: ProcessFigures) -> dict[str, Any]:
    """The form for JSON."""
    figures = {each.name: getattr(process, each.name) for each in fields(process)}
    return {**figures, "waits": [plain_wait(wait) for wait in process.waits]}


def plain_wait(wait: Wait) -> dict[str, Any]:
    """The form for JSON."""
    return {name: getattr(wait, name) for name in ("table", "side", "pid", "name", "since_s")}


def describe_waits(waits: tuple[Wait, ...]) -> str:
    """The longest of the waits, and how many more there are."""
    if not waits:
        return "-"
    longest = max(waits, key=lambda wait: wait.since_s)
    more = f" (+{len(waits) - 1})" if len(waits) > 1 else ""
    return f"{longest.side} {longest.table} {longest.since_s:.0f} s{more}"
