"""The learning curve: in the terminal, and as an image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

WIDTH, HEIGHT = 60, 8  # cells of the terminal
SMOOTHED_OVER = 20  # episodes, in the image
_BLOCKS, _ASCII = " ▁▂▃▄▅▆▇█", " ...ooo##"


def curve_lines(returns: Sequence[float], encoding: str | None = "utf-8") -> list[str]:
    """The returns of all episodes as a chart of a few lines: each column is the mean of some episodes."""
    if not returns:
        return []
    blocks = _BLOCKS if _can_show(_BLOCKS, encoding) else _ASCII
    num_columns = min(WIDTH, len(returns))
    edges = [column * len(returns) // num_columns for column in range(num_columns + 1)]
    means = [sum(returns[first:last]) / (last - first) for first, last in pairwise(edges)]
    top = max(*means, 1.0)
    steps = [round(mean / top * HEIGHT * (len(blocks) - 1)) for mean in means]
    lines = []
    for row in reversed(range(HEIGHT)):
        label = f"{top:.0f}" if row == HEIGHT - 1 else "0" if row == 0 else ""
        cells = [blocks[min(max(step - row * (len(blocks) - 1), 0), len(blocks) - 1)] for step in steps]
        lines.append(f"{label:>5} {''.join(cells)}".rstrip())
    last_episode = f"episode {len(returns):,}"
    lines.append(f"      1{last_episode:>{max(num_columns - 1, len(last_episode) + 1)}}")
    return lines


def _can_show(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def save_curve(path: str, returns: Sequence[float]) -> None:
    """Saves the returns, and their mean over some episodes, as an image. The ending of the path says of which kind.

    Raises:
        ImportError: matplotlib is not installed.
        OSError, ValueError: the file cannot be written, or matplotlib writes no such files.
    """
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(7, 4), layout="constrained")).add_subplot()
    axes.plot(range(1, len(returns) + 1), returns, ".", markersize=3, alpha=0.4, label="an episode")
    means = [
        sum(returns[last - SMOOTHED_OVER : last]) / SMOOTHED_OVER for last in range(SMOOTHED_OVER, len(returns) + 1)
    ]
    axes.plot(range(SMOOTHED_OVER, len(returns) + 1), means, label=f"mean of {SMOOTHED_OVER} episodes")
    axes.set(xlabel="episode", ylabel="return", title="CartPole-v1")
    axes.legend()
    figure.savefig(path)
