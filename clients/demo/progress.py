"""Progress: shows how far the training is, as a live panel on a terminal, as lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from shmreplay.clients.tables.info import TableInfo

NUM_EPISODES = 20  # that the mean is taken over
PANEL_EVERY_S, LINE_EVERY_S = 0.1, 1.0
RATE_WINDOW_S = 2.0
WIDTH = 60


class Progress:
    """Collects episode returns and the replay table's counters, and shows them.

    Args:
        title: of the panel.
        console: to print on.
        goal: the mean return at which the training ends.

    Attributes:
        all_returns: of every episode so far.
    """

    def __init__(self, title: str, console: Console, goal: float) -> None:
        self.all_returns: list[float] = []
        self._goal = goal
        self._title = title
        self._console = console
        self._started = time.monotonic()
        self._rates = Rates()
        self._next_show = 0.0
        self._live = Live(console=console, auto_refresh=False) if console.is_interactive else None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def mean_return(self) -> float:
        """The mean return of the last episodes; 0 before the first."""
        last = self.all_returns[-NUM_EPISODES:]
        return sum(last) / max(1, len(last))

    @property
    def has_reached_goal(self) -> bool:
        """Whether the mean return of the last 20 episodes is at least the goal."""
        return len(self.all_returns) >= NUM_EPISODES and self.mean_return >= self._goal

    def add(self, episode_returns: list[float]) -> None:
        """Adds the returns of episodes that have ended."""
        self.all_returns += episode_returns

    def show(self, info: TableInfo, is_last: bool = False) -> None:
        """Shows the figures, unless they were shown just before. The last ones are always shown."""
        if self.elapsed_s < self._next_show and not is_last:
            return
        self._next_show = self.elapsed_s + (PANEL_EVERY_S if self._live else LINE_EVERY_S)
        self._rates.add(self.elapsed_s, info)
        if self._live:
            self._live.update(self._panel(info), refresh=True)
        else:
            self._console.print(
                f"{self.elapsed_s:5.1f} s  {self._line(info, is_last)}", soft_wrap=True, highlight=False
            )

    def _line(self, info: TableInfo, is_last: bool) -> str:
        awaited = _awaited(info)
        if info.inserts == 0 and not is_last:
            return f"waiting for {awaited}"
        figures = "  ".join(f"{name} {value}" for name, value in self._figures(info).items())
        return f"{figures}  waiting for {awaited}" if awaited and not is_last else figures

    def _figures(self, info: TableInfo) -> dict[str, str]:
        # The limiter keeps samples = (inserts - min_size_to_sample) * samples_per_insert, within its error_buffer.
        ratio = info.samples / max(1, info.inserts - info.min_size_to_sample)
        return {
            "mean return": f"{self.mean_return:.1f}",
            "inserts/s": f"{self._rates.inserts:,.0f}",
            "samples/s": f"{self._rates.samples:,.0f}",
            "samples per insert": f"{ratio:.2f} (asked for {info.samples_per_insert:g})",
            "table size": f"{info.size:,} of {info.max_size:,}",
        }

    def _panel(self, info: TableInfo) -> Panel:
        grid = Table.grid(padding=(0, 2))
        for name, value in self._figures(info).items():
            grid.add_row(name, value)
        goal = self._goal
        grid.add_row(f"towards {goal:g}", ProgressBar(total=goal, completed=min(self.mean_return, goal), width=30))
        grid.add_row("episodes", f"{len(self.all_returns):,}")
        grid.add_row("time", f"{self.elapsed_s:.1f} s")
        if awaited := _awaited(info):
            grid.add_row("waiting for", awaited)
        return Panel(grid, title=self._title, width=WIDTH)

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()


def _awaited(info: TableInfo) -> str:
    """What the learner waits for before it begins; empty once it has begun."""
    if info.inserts == 0:
        return "the actors, which are starting"
    return f"{info.min_size_to_sample:,} items, which the learner begins with" if info.samples == 0 else ""


class Rates:
    """Inserts and samples a second over the last seconds.

    Attributes:
        inserts, samples: 0 until there are two readings.
    """

    def __init__(self) -> None:
        self.inserts = self.samples = 0.0
        self._seen: deque[tuple[float, int, int]] = deque()

    def add(self, now_s: float, info: TableInfo) -> None:
        """Adds a reading of the table's counters at `now_s`."""
        self._seen.append((now_s, info.inserts, info.samples))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > RATE_WINDOW_S:
            self._seen.popleft()
        before_s, inserts, samples = self._seen[0]
        if now_s > before_s:
            self.inserts = (info.inserts - inserts) / (now_s - before_s)
            self.samples = (info.samples - samples) / (now_s - before_s)
