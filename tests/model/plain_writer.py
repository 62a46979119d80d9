"""A writer in plain Python."""

from collections.abc import Set

from tests.model.plain_table import Row
from tests.support.tables import PATHS


class PlainWriter:
    """The steps that a writer holds, the oldest first; the open row, if any, is none of them yet."""

    def __init__(self, history: int, number: int) -> None:
        self.open_row: Row | None = None
        self.num_finished = 0  # finished steps of this episode
        self._history = history
        self._number = number
        self._num_episodes = 0
        self._held: list[Row] = []

    @property
    def episode(self) -> tuple[int, int]:
        return self._number, self._num_episodes

    @property
    def num_open(self) -> int:
        return 0 if self.open_row is None else 1

    @property
    def num_steps(self) -> int:
        return len(self._held) + self.num_open

    def newest(self, length: int) -> tuple[Row, ...]:
        rows = self._held + ([] if self.open_row is None else [self.open_row])
        return tuple(rows[-length:])

    def lacks(self, rows: tuple[Row, ...]) -> bool:
        """Whether a finished one of the rows lacks a column: the open one may."""
        return any(row is not self.open_row and row.has != frozenset(PATHS) for row in rows)

    def append(self, n: int, brought: Set[str], partial: bool) -> None:
        before: Set[str] = frozenset() if self.open_row is None else self.open_row.has
        self.open_row = Row(n, frozenset(before | brought))
        if not partial:
            self._finish()

    def end_episode(self, clear_history: bool) -> None:
        if self.open_row is not None:
            self._finish()
        if clear_history:
            self._held = []
        self.num_finished = 0
        self._num_episodes += 1

    def _finish(self) -> None:
        assert self.open_row is not None
        self._held = [*self._held, self.open_row][-self._history :]
        self.open_row = None
        self.num_finished += 1
