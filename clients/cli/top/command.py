"""The command `top`: the loop of the screen, and the single output of --once."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import time

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected, seconds
from shmreplay.clients.cli.top.controls import Controls
from shmreplay.clients.cli.top.feed import Feed
from shmreplay.clients.cli.top.once import as_json, as_lines
from shmreplay.clients.cli.top.rates import Rates
from shmreplay.clients.cli.top.screen import Screen
from shmreplay.clients.cli.top.state import State
from shmreplay.clients.cli.top.table_actions import TableActions
from shmreplay.clients.cli.top.text import marks_for
from shmreplay.clients.cli.top.view import frame

LEAST_INTERVAL_S, LONGEST_INTERVAL_S = 0.1, 86400.0
PIPE_WIDTH = 132  # of --once where there is no terminal; the last column may be wider
TICK_S = 1.0  # the age of the figures is shown in seconds


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "top",
        help="watch tables and clients live; pause, resume, drain, drop tables",
        description="Shows a daemon's tables and clients until you press q, on a terminal of at least 80 by 24. ? "
        "lists the keys. NO_COLOR=1 turns colours off.",
    )
    add = parser.add_argument
    interval = seconds(LEAST_INTERVAL_S, LONGEST_INTERVAL_S)
    add("--interval", type=interval, default=2.0, metavar="S", help="seconds between two readings (default: 2)")
    add("--once", action="store_true", help="print the figures once, with rates over one interval")
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Shows the screen until q. Raises if there is no daemon, no permission or no terminal at the beginning."""
    if args.once:
        return _run_once(args)
    if args.json:
        raise ValueError("--json prints the figures once; give --once, too")
    with connected(args) as client:
        address = client.address
    with Screen(os.environ) as screen:
        _run_live(screen, address, args)
    return 0


def _run_once(args: argparse.Namespace) -> int:
    rates = Rates()
    with connected(args) as client:
        rates.take(client.stats(items=True), time.monotonic())
        time.sleep(args.interval)
        snapshot = rates.take(client.stats(), time.monotonic())
    if args.json:
        print(to_json(as_json(snapshot)))
    else:
        width = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
        print("\n".join(as_lines(snapshot, width, marks_for(sys.stdout.encoding))))
    return 0


def _run_live(screen: Screen, address: str, args: argparse.Namespace) -> None:
    logging.getLogger("shmreplay").addHandler(logging.NullHandler())  # or its warnings go to stderr, into the screen
    state = State(args.interval)
    feed, actions = Feed(address, args.interval, screen.wake), TableActions(address, args.timeout, screen.wake)
    controls, rates, marks = Controls(state, actions.do), Rates(), marks_for(sys.stdout.encoding)
    feed.start()
    while True:
        news, state.problem = feed.take()
        if news is not None and not state.is_frozen:
            state.snapshot = rates.take(*news)
        if (result := actions.take()) is not None:
            state.say(result[0], is_refused=result[1])
            feed.look_now()
        size = screen.size
        controls.resize(size)
        screen.paint(frame(state, size, marks, now_s=time.monotonic(), marks_row=not screen.has_colours))
        keys = screen.wait(TICK_S)
        if keys is None or not all(controls.press(key) for key in keys):
            return
