"""`shmreplay set-ratio`: changes how often items of a table are sampled, while it is in use."""

from __future__ import annotations

import argparse
import sys
import warnings

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.figures.daemon_figures import Figures
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected
from shmreplay.rate_limiters import readable_bound
from shmreplay.rules.limiter_change import changed_limiter


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "set-ratio",
        help="change how often items of a table are sampled",
        description="Changes a table's ratio of samples to inserts, while it is in use. Without the options, the size "
        "from which it may be sampled stays, and so does how far the difference may go to either side, unless the new "
        "ratio needs more.",
    )
    add = parser.add_argument
    add("table", metavar="TABLE")
    add("ratio", type=float, metavar="RATIO", help="samples per insert, above 0")
    add("--min-size-to-sample", type=int, metavar="N", help="samples wait until there are so many items")
    add("--error-buffer", type=float, metavar="E", help="how far, in samples, the difference may go to either side")
    add(
        "--keep-difference",
        action="store_true",
        help="keep the difference as it is, instead of the middle of the bounds",
    )
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Changes the rate limiter, and prints the new one."""
    with connected(args) as client:
        info = Figures.read(client.stats()).table(args.table).info
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            limiter = changed_limiter(info, args.ratio, args.min_size_to_sample, args.error_buffer)
            client.set_rate_limiter(args.table, limiter, rebase=not args.keep_difference, timeout_s=args.timeout)
    for warning in warned:
        print(f"shmreplay set-ratio: warning: {warning.message}", file=sys.stderr)
    low, high = readable_bound(limiter.min_diff), readable_bound(limiter.max_diff)
    if args.json:
        numbers = {"samples_per_insert": limiter.samples_per_insert, "min_size_to_sample": limiter.min_size_to_sample}
        print(to_json({"table": args.table, **numbers, "min_diff": low, "max_diff": high}))
        return 0
    print(
        f"{args.table}: {limiter.samples_per_insert:g} samples per insert from {limiter.min_size_to_sample} items on, "
        f"difference within {low:g} and {high:g}"
    )
    return 0
