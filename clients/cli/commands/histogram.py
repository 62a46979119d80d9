"""`shmreplay histogram`: shows the distribution of a table's priorities, ages or numbers of samples."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.items.shown_items import shards_of, short
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected, positive
from shmreplay.clients.cli.terminal.printing import can_show, counted
from shmreplay.figures.item_figures import MAX_ITEMS

WHAT = ("priority", "age", "times_sampled")
MAX_BINS = 200
EIGHTHS = "▏▎▍▌▋▊▉█"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "histogram",
        help="show the distribution of priorities, ages or samples of items",
        description=f"Reads at most {MAX_ITEMS} items, evenly chosen, without the lock; for a larger table it scales "
        "the counts up. The age of an item is the number of inserts after its own.",
    )
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("what", choices=WHAT, metavar="|".join(WHAT))
    parser.add_argument("--bins", type=_bins, default=20, metavar="N", help=f"bars, at most {MAX_BINS} (default: 20)")
    parser.add_argument("--log", action="store_true", help="logarithmic bars: each spans a multiple of the one before")
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints a line of figures, then one line for each bar."""
    with connected(args) as client:
        looks = [shard._control().survey(MAX_ITEMS) for shard in shards_of(client.table(args.table))]
    values = np.concatenate([np.asarray(_column(look, args.what), np.float64) for look in looks])
    weights = np.concatenate([np.full(len(look[0]), look[4], np.float64) for look in looks])
    found = summarise(values, weights, args.bins, args.log, args.what == "times_sampled")
    if args.json:
        print(to_json({"table": args.table, "what": args.what, **found}))
        return 0
    if len(values) == 0:
        print(f"table {args.table!r} has no items")
        return 0
    print(
        f"table {args.table!r}: {args.what} of {counted(found['items'], 'item')}{_looked_at(found)}: "
        f"{short(found['min'])} to {short(found['max'])}, median {short(found['median'])}, mean {short(found['mean'])}"
    )
    width, has_blocks = shutil.get_terminal_size((80, 24)).columns, can_show(EIGHTHS, sys.stdout.encoding)
    print("\n".join(bars(found["edges"], found["counts"], width, has_blocks)))
    return 0


def _bins(text: str) -> int:
    number = positive(text)
    if number > MAX_BINS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MAX_BINS} bars")
    return number


def summarise(
    values: NDArray[np.float64], weights: NDArray[np.float64], num_bins: int, is_log: bool, is_whole: bool
) -> dict[str, Any]:
    """Figures of the values, and how many lie between edges. `weights`: how many items each value stands for.

    Bins of whole numbers have a whole width. With `is_log` each edge is a multiple of the one before, and if there are
    values of 0, the first bin is theirs. There are fewer bins where the values are too near each other for so many.
    """
    if len(values) == 0:
        return {"items": 0, "looked_at": 0, "edges": [], "counts": []}
    low, high = float(values.min()), float(values.max())
    if is_log and high > 0:
        edges = _log_edges(values, num_bins)
    elif is_whole:
        width = max(1, -(-int(high - low + 1) // num_bins))
        edges = np.arange(low, high + 1 + width, width)
        edges = edges[: int(np.searchsorted(edges, high, side="right")) + 1]
    else:
        edges = np.unique(
            np.linspace(low, high if high > low else max(low + 1, np.nextafter(low, np.inf)), num_bins + 1)
        )
    counts = np.histogram(values, edges, weights=weights)[0]
    order = np.argsort(values, kind="stable")
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return {
        "items": round(float(weights.sum())),
        "looked_at": len(values),
        "min": low,
        "max": high,
        "mean": float(np.average(values, weights=weights)),
        "median": float(values[order][middle]),
        "edges": edges.tolist(),
        "counts": [round(count) for count in counts.tolist()],
    }


def _log_edges(values: NDArray[np.float64], num_bins: int) -> NDArray[np.float64]:
    """Edges of at most `num_bins` bins. If there are values of 0, the first bin is theirs."""
    least, end = float(values[values > 0].min()), float(np.nextafter(values.max(), np.inf))
    if values.min() > 0:
        return np.unique(np.clip(np.geomspace(least, end, num_bins + 1), least, end))
    if num_bins == 1:
        return np.array([0.0, end])
    return np.unique(np.concatenate([[0.0], np.clip(np.geomspace(least, end, num_bins), least, end)]))


def bars(edges: list[float], counts: list[int], width: int, has_blocks: bool) -> list[str]:
    """A line for each bin: its edges, its count and a bar, within `width` columns."""
    begins, ends = [short(edge) for edge in edges[:-1]], [short(edge) for edge in edges[1:]]
    numbers = [str(count) for count in counts]
    begin, end, number = (max(map(len, texts)) for texts in (begins, ends, numbers))
    room = max(1, width - begin - end - number - len(" to    "))
    most = max(counts) or 1
    return [
        f"{first:>{begin}} to {last:>{end}}  {text:>{number}} {_bar(count / most * room, has_blocks)}".rstrip()
        for first, last, text, count in zip(begins, ends, numbers, counts, strict=True)
    ]


def _bar(length: float, has_blocks: bool) -> str:
    """A bar of that length. It is empty only for a length of 0."""
    if not has_blocks:
        return "#" * (max(1, round(length)) if length > 0 else 0)
    eighths = max(1, round(length * 8)) if length > 0 else 0
    whole, rest = divmod(eighths, 8)
    return EIGHTHS[-1] * whole + (EIGHTHS[rest - 1] if rest else "")


def _column(look: tuple[Any, ...], what: str) -> Any:
    _, ages, times_sampled, priorities, _ = look
    return {"priority": priorities, "age": ages, "times_sampled": times_sampled}[what]


def _looked_at(found: dict[str, Any]) -> str:
    return "" if found["looked_at"] == found["items"] else f" (by {found['looked_at']} of them)"
