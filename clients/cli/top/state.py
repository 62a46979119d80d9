"""State: what the screen shows: the list, the selected row, the order, and a question."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shmreplay.clients.cli.top.columns import CLIENT_COLUMNS, TABLE_COLUMNS, Column
from shmreplay.clients.cli.top.rates import ClientRow, Snapshot, TableRow

TABLES, CLIENTS = "tables", "clients"
COLUMNS = {TABLES: TABLE_COLUMNS, CLIENTS: CLIENT_COLUMNS}
_TEXT_FIRST = (
    "name",
    "role",
    "tables",
    "pid",
)  # sorted alphabetically at first; figures are sorted with the largest first


@dataclass
class Question:
    """A question in the last line. `keys` are the possible answers; without keys, a text is typed and ended by enter.

    `answer` is called with the answer.
    """

    text: str
    answer: Callable[[str], None]
    keys: tuple[str, ...] = ()
    typed: str = ""
    change: Callable[[str, str], str] | None = None  # changes the typed text for + and -


@dataclass
class Listing:
    """A list: its order, its selected row, and the first row on the screen."""

    order: str
    is_descending: bool
    selected: Hashable | None = None
    at: int = 0  # the position of the selected row; when that row disappears, the one there is selected
    first: int = 0
    having: str = ""  # only rows with this text in their name are shown


@dataclass
class State:
    """Everything that a frame shows. `snapshot` is None before the first answer; `problem` says why there is none."""

    interval_s: float
    tab: str = TABLES
    lists: dict[str, Listing] = field(
        default_factory=lambda: {TABLES: Listing("name", False), CLIENTS: Listing("pid", False)}
    )
    snapshot: Snapshot | None = None
    problem: str | None = None
    message: str = ""
    is_refused: bool = False  # whether the message says why an action was not done
    question: Question | None = None
    shows_help: bool = False
    is_frozen: bool = False

    @property
    def listing(self) -> Listing:
        """That of the list that is shown."""
        return self.lists[self.tab]

    @property
    def columns(self) -> Sequence[Column]:
        """That of the list that is shown."""
        return COLUMNS[self.tab]

    def rows(self) -> list[Any]:
        """The rows of the list that is shown, in its order."""
        if self.snapshot is None:
            return []
        rows: list[Any] = [*(self.snapshot.tables if self.tab == TABLES else self.snapshot.clients)]
        if self.listing.having:
            rows = [row for row in rows if self.listing.having in row.label]
        column = next(column for column in self.columns if column.name == self.listing.order)
        known = [row for row in rows if column.order(row) is not None]
        unknown = [row for row in rows if column.order(row) is None]
        return sorted(known, key=column.order, reverse=self.listing.is_descending) + unknown

    def selected(self) -> TableRow | ClientRow | None:
        """The selected row. It stays selected while other rows change places."""
        rows, listing = self.rows(), self.listing
        if not rows:
            return None
        for at, row in enumerate(rows):
            if row.key == listing.selected:
                listing.at = at
                return row  # type: ignore[no-any-return]
        listing.at = min(listing.at, len(rows) - 1)
        listing.selected = rows[listing.at].key
        return rows[listing.at]  # type: ignore[no-any-return]

    def move(self, by: int) -> None:
        """Selects another row."""
        rows = self.rows()
        if rows and self.selected() is not None:
            self.listing.at = min(max(self.listing.at + by, 0), len(rows) - 1)
            self.listing.selected = rows[self.listing.at].key

    def order_by(self, by: int, shown: Sequence[Column]) -> None:
        """Sorts by another of the shown columns, `by` columns to the right."""
        names = [column.name for column in shown]
        now = names.index(self.listing.order) if self.listing.order in names else 0
        self.listing.order = names[(now + by) % len(names)]
        self.listing.is_descending = self.listing.order not in _TEXT_FIRST

    def say(self, text: str, *, is_refused: bool = False) -> None:
        """Shows a text in the last line until the next key."""
        self.message, self.is_refused = text, is_refused
