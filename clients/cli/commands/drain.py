"""`shmreplay drain`: pauses the inserts of a table, and waits until its items are sampled away."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from shmreplay.base.json_values import to_json
from shmreplay.base.waiting import ago
from shmreplay.clients.cli.figures.daemon_figures import Figures, TableFigures
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected, seconds
from shmreplay.clients.cli.terminal.printing import counted, show_progress
from shmreplay.clients.client import Client
from shmreplay.errors import ShmReplayError
from shmreplay.protocol import Deadline

LOOK_S = 0.1  # there is no event that tells other processes that a table is empty
PROGRESS_S = 1.0


@dataclass(frozen=True)
class Drained:
    """The result: items that are left, since no sample of them is admitted, and samples since the beginning."""

    left: int
    samples: int


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "drain",
        help="pause a table's inserts until its items are sampled away",
        description="For tables whose items are removed after their last sample. Pauses the inserts, and waits until "
        "no item is left, or the rate limiter admits no further sample. Inserts stay paused: shmreplay resume TABLE.",
    )
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument(
        "--wait", type=seconds(), metavar="S", help="give up after so many seconds in all (default: never)"
    )
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Drains the table, and prints the result. Progress goes to stderr. Raises ShmReplayError after --wait seconds."""
    with connected(args) as client:
        before = Figures.read(client.stats()).table(args.table)
        check_drainable(before)
        client.pause(args.table, inserts=True, samples=False, timeout_s=args.timeout)
        try:
            drained = _wait(client, before, Deadline(args.wait))
        except KeyboardInterrupt:
            show_progress(_still_paused(args.table))
            raise
    if args.json:
        print(to_json({"table": args.table, "left": drained.left, "samples": drained.samples}))
        return 0
    left = f"{_left(drained)}, and the rate limiter admits no sample of them" if drained.left else "empty"
    print(f"{args.table}: {left}, after {counted(drained.samples, 'sample')}; {_still_paused(args.table)}")
    return 0


def check_drainable(table: TableFigures) -> None:
    """Raises ValueError if the table's items are never removed, ShmReplayError if its samples are paused."""
    if table.info["max_times_sampled"] == 0:
        raise ValueError(
            f"table {table.name!r}: its items stay when they are sampled (max_times_sampled is 0), so it never drains; "
            f"`shmreplay pause {table.name} --inserts` keeps new ones out"
        )
    if table.info["paused_samples"]:
        raise ShmReplayError(
            f"table {table.name!r}: samples are paused, so nobody takes its {counted(table.info['size'], 'item')}; "
            f"`shmreplay resume {table.name}` lets them go on"
        )


def _wait(client: Client, before: TableFigures, deadline: Deadline) -> Drained:
    name = before.name
    shown_at, shown = float("-inf"), -1
    while True:
        table = Figures.read(client.stats()).table(name)
        info = table.info
        drained = Drained(info["size"], info["samples"] - before.info["samples"])
        if drained.left == 0 or (not table.admits_sample() and not info["paused_samples"] and not info["is_stopping"]):
            return drained
        check_drainable(table)
        if not info["paused_inserts"]:
            raise ShmReplayError(
                f"table {name!r}: somebody resumed its inserts; {_left(drained)}, after "
                f"{counted(drained.samples, 'sample')}"
            )
        if time.monotonic() - shown_at >= PROGRESS_S and shown != drained.left:
            show_progress(f"{name}: {_left(drained)}")
            shown_at, shown = time.monotonic(), drained.left
        if deadline.is_over:
            raise ShmReplayError(
                f"table {name!r}: not empty within {deadline.timeout_s:g} s: {_left(drained)}, after "
                f"{counted(drained.samples, 'sample')} (last one {ago(info['last_sample_s_ago'])}); "
                f"{_still_paused(name)}"
            )
        remaining_s = deadline.remaining_s()
        time.sleep(LOOK_S if remaining_s is None else min(LOOK_S, remaining_s))


def _left(drained: Drained) -> str:
    return counted(drained.left, "item is left", "items are left")


def _still_paused(name: str) -> str:
    return f"inserts stay paused until `shmreplay resume {name}`"
