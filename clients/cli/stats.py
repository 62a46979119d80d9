"""`shmreplay stats`: a daemon's figures."""

from __future__ import annotations

import argparse
import json

from shmreplay.clients.cli.options import add_daemon_options, format_rows
from shmreplay.clients.client import connect
from shmreplay.host_memory import show_bytes


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    add_daemon_options(subparsers.add_parser("stats", help="show the figures of a daemon and its arenas"))


def run(args: argparse.Namespace) -> int:
    """Prints the daemon, then one line an arena."""
    with connect(args.address, args.timeout) as client:
        stats = client.stats()
    if args.json:
        print(json.dumps(stats, indent=2, default=str))
        return 0
    daemon = stats["daemon"]
    print(
        f"shmreplayd {daemon['version']}, pid {daemon['pid']}, instance {daemon['instance']}, "
        f"up {daemon['uptime_s']:.0f} s: "
        f"{daemon['clients']} clients, {daemon['processes']} attached processes, {daemon['deaths']} deaths seen"
    )
    rows = [
        (
            name,
            len(arena["tables"]),
            show_bytes(arena["index_bytes"] + arena["data_bytes"]),
            len(arena.get("sessions", ())),
            arena["failure"] or ("unlinked by somebody" if arena["is_unlinked"] else "healthy"),
        )
        for name, arena in sorted(stats["arenas"].items())
    ]
    if rows:
        print(format_rows(("arena", "tables", "memory", "sessions", "state"), rows))
    return 0
