"""`shmreplay stats`: a daemon's figures."""

from __future__ import annotations

import argparse
import json
from typing import Any

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
    if daemon["checkpoint"] is not None:
        print(_describe_checkpoint(daemon["checkpoint"]))
    rows = [
        (
            name,
            len(arena["tables"]),
            show_bytes(arena["index_bytes"] + arena["data_bytes"]),
            show_bytes(arena["huge_bytes"]),
            len(arena.get("sessions", ())),
            _describe_state(arena),
        )
        for name, arena in sorted(stats["arenas"].items())
    ]
    if rows:
        print(format_rows(("arena", "tables", "memory", "huge", "sessions", "state"), rows))
    return 0


def _describe_checkpoint(found: dict[str, Any]) -> str:
    """The last one that was saved, and what failed since."""
    parts = []
    if found["path"] is not None:
        parts.append(f"{found['path']}, {show_bytes(found['bytes'])}, saved {found['saved_s_ago']:.0f} s ago")
    if found["error"] is not None:
        parts.append(f"none was saved {found['failed_s_ago']:.0f} s ago: {found['error']}")
    return f"checkpoint: {'; '.join(parts)}"


def _describe_state(arena: dict[str, Any]) -> str:
    if arena["failure"]:
        return str(arena["failure"])
    if arena["stats"]["failed"]:
        return "failed: its index is damaged"
    return "unlinked by somebody" if arena["is_unlinked"] else "healthy"
