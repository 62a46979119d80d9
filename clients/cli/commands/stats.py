"""`shmreplay stats`: shows the figures of a daemon and its arenas."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from shmreplay.base.host_memory import show_bytes
from shmreplay.base.json_values import to_json
from shmreplay.base.process_names import describe_process
from shmreplay.clients.cli.figures.daemon_figures import Figures, arena_state
from shmreplay.clients.cli.figures.offline_figures import read_arenas
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.clients.cli.terminal.printing import counted, format_rows
from shmreplay.errors import ShmReplayError
from shmreplay.segments.segment import SegmentStore, check_name, default_instance

FIGURES = ("size", "max_size", "inserts", "samples", "deletes", "blocked_inserts", "blocked_samples")
MAX_WAITS = 20  # that are shown


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("stats", help="show the figures of a daemon and its arenas")
    add_daemon_options(parser)
    offline = parser.add_argument_group("without a daemon")
    offline.add_argument("--offline", action="store_true", help="read the figures directly from shared memory")
    instance_help = "the instance (default: default for root, user-UID for others)"
    offline.add_argument("--instance", metavar="NAME", default=default_instance(), help=instance_help)
    offline.add_argument("--directory", metavar="DIR", help="where its segments are (default: /dev/shm)")


def run(args: argparse.Namespace) -> int:
    """Prints the daemon, one line an arena, and calls that wait; offline also one line a table.

    Offline it returns 1 if an arena is unreadable.
    """
    if args.offline:
        return _run_offline(args)
    with connected(args) as client:
        stats = client.stats()
    if args.json:
        print(to_json(stats))
        return 0
    daemon = stats["daemon"]
    print(
        f"shmreplayd {daemon['version']}, pid {daemon['pid']}, instance {daemon['instance']}, "
        f"up {daemon['uptime_s']:.0f} s: "
        f"{counted(daemon['clients'], 'client')}, "
        f"{counted(daemon['processes'], 'attached process', 'attached processes')}, "
        f"{counted(daemon['deaths'], 'death')} seen"
    )
    if daemon["checkpoint"] is not None:
        print(_describe_checkpoint(daemon["checkpoint"]))
    _print_arenas(stats["arenas"])
    _print_waits(stats["arenas"])
    return 0


def _run_offline(args: argparse.Namespace) -> int:
    """Raises ShmReplayError if the instance has no arena there."""
    store = SegmentStore(args.directory)
    arenas, unreadable = read_arenas(store, check_name("instance", args.instance))
    if not arenas and not unreadable:
        others = ", ".join(store.instances())
        hint = f"; there are files of instances {others}: give one as --instance" if others else ""
        raise ShmReplayError(f"there is no arena of instance {args.instance!r} in {store.directory}{hint}")
    for arena, reason in unreadable.items():
        print(f"shmreplay stats: arena {arena!r}: {reason}", file=sys.stderr)
    if args.json:
        found = {"instance": args.instance, "arenas": arenas, "unreadable": unreadable}
        print(to_json(found))
    else:
        _print_arenas(arenas)
        rows = [
            (table, *(info[figure] for figure in FIGURES))
            for arena in arenas.values()
            for table, info in sorted(arena["tables"].items())
        ]
        if rows:
            print(format_rows(("table", *FIGURES), rows))
        _print_waits(arenas)
    return 1 if unreadable else 0


def _print_arenas(arenas: Mapping[str, Any]) -> None:
    """One line each. Only a daemon knows how much of an arena is in huge pages."""
    rows = [
        (
            name,
            len(arena["tables"]),
            show_bytes(arena["index_bytes"] + arena["data_bytes"]),
            show_bytes(arena["huge_bytes"]) if "huge_bytes" in arena else "-",
            len(arena.get("sessions", ())),
            arena_state(arena),
        )
        for name, arena in sorted(arenas.items())
    ]
    if rows:
        print(format_rows(("arena", "tables", "memory", "huge", "sessions", "state"), rows))


def _print_waits(arenas: Mapping[str, Any]) -> None:
    """The calls that wait, the longest wait first, with the reason."""
    tables = Figures.read({"daemon": {}, "arenas": arenas}).tables
    waits = sorted((wait for table in tables for wait in table.waits), key=lambda wait: -wait.since_s)
    for wait in waits[:MAX_WAITS]:
        who = describe_process(wait.pid, wait.name)
        print(f"table {wait.table!r}: {who} has waited {wait.since_s:.0f} s to {wait.side}: {wait.reason}")
    if len(waits) > MAX_WAITS:
        more = counted(len(waits) - MAX_WAITS, "more call waits", "more calls wait")
        print(f"{more}; --json has them all")


def _describe_checkpoint(found: dict[str, Any]) -> str:
    """The last checkpoint that was saved, and what failed since."""
    parts = []
    if found["path"] is not None:
        parts.append(f"{found['path']}, {show_bytes(found['bytes'])}, saved {found['saved_s_ago']:.0f} s ago")
    if found["error"] is not None:
        parts.append(f"a save failed {found['failed_s_ago']:.0f} s ago: {found['error']}")
    return f"checkpoint: {'; '.join(parts)}"
