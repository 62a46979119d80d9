"""`shmreplay demo`: actors and a learner solve CartPole together. The demo itself is in `shmreplay.clients.demo`."""

from __future__ import annotations

import argparse
import importlib.util

from shmreplay.errors import ShmReplayError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "demo",
        help="train CartPole-v1 with actor processes and a learner",
        epilog="Exit code: 0 if it is solved, 1 if the time is up before or a process died, 130 after a Ctrl-C.",
    )
    add = parser.add_argument
    add("--actors", type=int, default=4, metavar="N", help="actor processes (default: 4)")
    add("--seconds", type=float, default=180.0, metavar="S", help="give up after so long (default: 180)")
    add("--seed", type=int, default=0, metavar="N", help="seed of environments, exploration and weights (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Trains, and returns the exit code.

    Raises:
        ValueError: a number is out of range.
        ShmReplayError: a package is missing, or a process died.
    """
    for name, value, smallest in (("actors", args.actors, 1), ("seconds", args.seconds, 0), ("seed", args.seed, 0)):
        if not value >= smallest:
            raise ValueError(f"--{name} is {value}; expected {smallest} or more")
    missing = [name for name in ("gymnasium", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        raise ShmReplayError(f"needs {' and '.join(missing)}: python -m pip install {' '.join(missing)}")

    from shmreplay.clients.demo.training import train  # no other command needs these packages

    return train(args.actors, args.seconds, args.seed)
