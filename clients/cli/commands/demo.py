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
        description="Trains DQN on CartPole-v1 until the mean return of 20 episodes is 475, which counts as solved. "
        "On the way it kills an actor with SIGKILL and starts another one. It ends with the learning curve.",
        epilog="Exit code: 0 if the goal is reached, 1 if the time is up before or a process died, 130 after a Ctrl-C.",
    )
    add = parser.add_argument
    add("--actors", type=int, default=4, metavar="N", help="actor processes (default: 4)")
    add("--seconds", type=float, default=600.0, metavar="S", help="give up after so long (default: 600)")
    add(
        "--goal",
        type=float,
        default=475.0,
        metavar="R",
        help="mean return to reach (default: 475, solved)",
    )
    add("--plot", metavar="FILE", help="save the learning curve as an image (needs matplotlib)")
    add("--seed", type=int, default=0, metavar="N", help="seed of environments, exploration and weights (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Trains, and returns the exit code.

    Raises:
        ValueError: a number is out of range, or matplotlib writes no such files.
        OSError: the image cannot be written.
        ShmReplayError: a package is missing, or a process died.
    """
    for name, smallest in (("actors", 1), ("seconds", 0), ("seed", 0), ("goal", 1)):
        if not (value := getattr(args, name)) >= smallest:
            raise ValueError(f"--{name} is {value}; expected {smallest} or more")
    needed = ["gymnasium", "rich", *(["matplotlib"] if args.plot else [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ShmReplayError(f"needs {' and '.join(missing)}: python -m pip install {' '.join(missing)}")

    from shmreplay.clients.demo.training import train  # no other command needs these packages

    return train(args.actors, args.seconds, args.seed, args.goal, args.plot)
