"""`shmreplay tables`: lists the tables of a daemon."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.figures.daemon_figures import arenas_of
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.clients.cli.terminal.printing import format_rows

FIGURES = ("size", "inserts", "samples", "deletes")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    add_daemon_options(subparsers.add_parser("tables", help="list the tables of a daemon"))


def run(args: argparse.Namespace) -> int:
    """Prints one line a table."""
    with connected(args) as client:
        tables, unknown = client._known_tables()
    for name, why in unknown.items():
        print(f"table {name!r} has columns that are not known here: {why}", file=sys.stderr)
    if args.json:
        plain = {name: _plain(entry) for name, entry in tables.items()}
        print(to_json(plain))
        return 0
    if not tables:
        print("no tables")
        return 0
    rows = [
        (
            name,
            entry["spec"].max_size if "spec" in entry else "?",
            *(entry.get(figure, "-") for figure in FIGURES),
            ", ".join(arenas_of(entry)),
        )
        for name, entry in sorted(tables.items())
    ]
    print(format_rows(("table", "max_size", *FIGURES, "arena"), rows))
    return 0


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """The form for JSON."""
    return {**entry, "spec": entry["spec"].to_wire() if "spec" in entry else None}
