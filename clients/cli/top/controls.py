"""Controls: what each key does."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from shmreplay.clients.cli.commands.drain import check_drainable
from shmreplay.clients.cli.terminal.printing import counted
from shmreplay.clients.cli.top.columns import layout
from shmreplay.clients.cli.top.rates import TableRow
from shmreplay.clients.cli.top.state import CLIENTS, TABLES, Question, State
from shmreplay.clients.client import Client
from shmreplay.errors import ShmReplayError
from shmreplay.rules.limiter_change import changed_limiter

STEP = 1.1  # + and - change a ratio by this factor
MAX_TYPED = 80
LOCK_TIMEOUT_S = 10.0  # for an arena's lock; somebody waits for the answer

Do = Callable[[str, Callable[[Client], str]], None]


class Controls:
    """Turns keys into changes of the state, and into actions on tables, which `do` runs in the background."""

    def __init__(self, state: State, do: Do) -> None:
        self.state = state
        self._do = do
        self._page = 10
        self._width = 80
        self._by_key: dict[str, Callable[[], None]] = {
            "up": lambda: state.move(-1),
            "k": lambda: state.move(-1),
            "down": lambda: state.move(1),
            "j": lambda: state.move(1),
            "page up": lambda: state.move(-self._page),
            "page down": lambda: state.move(self._page),
            "home": lambda: state.move(-(10**9)),
            "end": lambda: state.move(10**9),
            "tab": self._next_tab,
            "back tab": self._next_tab,
            "<": lambda: self._order_by(-1),
            "left": lambda: self._order_by(-1),
            ">": lambda: self._order_by(1),
            "right": lambda: self._order_by(1),
            "R": self._turn_round,
            "/": self._ask_name,
            "escape": self._show_all,
            " ": self._stop_figures,
            "?": self._show_help,
            "h": self._show_help,
        }
        self._on_table: dict[str, Callable[[TableRow], None]] = {
            "p": self._ask_pause,
            "r": self._resume,
            "d": self._ask_drain,
            "s": lambda row: self._ask_ratio(row, 1.0),
            "+": lambda row: self._ask_ratio(row, STEP),
            "-": lambda row: self._ask_ratio(row, 1 / STEP),
            "D": self._ask_drop,
        }

    def resize(self, size: tuple[int, int]) -> None:
        """Takes note of the screen's size."""
        self._width, self._page = size[0], max(size[1] // 2, 1)

    def press(self, key: str) -> bool:
        """Does what the key stands for. Returns False if it ends the program."""
        state = self.state
        if state.question is not None:
            try:
                self._answer(state.question, key)
            except (ShmReplayError, ValueError) as error:
                state.say(str(error), is_refused=True)
            return True
        state.say("")
        if state.shows_help:
            state.shows_help = False
            return True
        if key in ("q", "Q"):
            return False
        if key in self._by_key:
            self._by_key[key]()
        elif key in self._on_table:
            self._press_on_table(self._on_table[key])
        return True

    def _press_on_table(self, action: Callable[[TableRow], None]) -> None:
        row = self.state.selected()
        try:
            if not isinstance(row, TableRow):
                raise ValueError(self._why_no_table())
            if not row.info and action != self._ask_drop:
                raise ShmReplayError(f"table {row.key!r}: {row.figures.failure}")
            action(row)
        except (ShmReplayError, ValueError) as error:
            self.state.say(str(error), is_refused=True)

    def _why_no_table(self) -> str:
        listing = self.state.listing
        if self.state.tab == TABLES and listing.having:
            return f"no table has {listing.having!r} in its name; esc shows all"
        return "no table is selected; tab shows them"

    def _answer(self, question: Question, key: str) -> None:
        state = self.state
        if key in ("escape", "interrupt"):
            state.question = None
            state.say("nothing was done")
        elif question.keys:
            state.question = None
            if key in question.keys:
                question.answer(key)
            else:
                state.say("nothing was done")
        elif key == "enter":
            state.question = None
            question.answer(question.typed.strip())
        elif key == "backspace":
            question.typed = question.typed[:-1]
        elif key == "clear":
            question.typed = ""
        elif question.change is not None and key in "+-":
            question.typed = question.change(question.typed, key)
        elif len(key) == 1 and key.isprintable() and len(question.typed) < MAX_TYPED:
            question.typed += key

    # --- looking -------------------------------------------------------------------------------------------------

    def _next_tab(self) -> None:
        self.state.tab = CLIENTS if self.state.tab == TABLES else TABLES

    def _order_by(self, by: int) -> None:
        self.state.order_by(by, [column for column, _ in layout(self.state.columns, self._width - 1)])

    def _turn_round(self) -> None:
        self.state.listing.is_descending = not self.state.listing.is_descending

    def _stop_figures(self) -> None:
        self.state.is_frozen = not self.state.is_frozen

    def _ask_name(self) -> None:
        listing = self.state.listing

        def look_for(typed: str) -> None:
            listing.having = typed

        self.state.question = Question(
            "only those with this in their name (nothing: all):", look_for, typed=listing.having
        )

    def _show_all(self) -> None:
        self.state.listing.having = ""

    def _show_help(self) -> None:
        self.state.shows_help = True

    # --- doing ---------------------------------------------------------------------------------------------------

    def _ask_pause(self, row: TableRow) -> None:
        name = row.key

        def pause(key: str) -> None:
            inserts, samples = key in "ib", key in "sb"
            what = {"i": "inserts are", "s": "samples are", "b": "inserts and samples are"}[key]

            def action(client: Client) -> str:
                client.pause(name, inserts=inserts, samples=samples, timeout_s=LOCK_TIMEOUT_S)
                return f"{name}: {what} paused; r lets them go on"

            self._do(f"pause {name}", action)

        self.state.question = Question(f"pause {name}: i inserts, s samples, b both?", pause, ("i", "s", "b"))

    def _resume(self, row: TableRow) -> None:
        name = row.key

        def action(client: Client) -> str:
            client.resume(name, timeout_s=LOCK_TIMEOUT_S)
            return f"{name}: inserts and samples go on"

        self._do(f"resume {name}", action)

    def _ask_drain(self, row: TableRow) -> None:
        name = row.key
        check_drainable(row.figures)

        def action(client: Client) -> str:
            client.pause(name, inserts=True, samples=False, timeout_s=LOCK_TIMEOUT_S)
            return f"{name}: inserts are paused until r, its items drain away"

        self.state.question = Question(
            f"drain {name}: pause inserts and let its {counted(row.info['size'], 'item')} be sampled away? y/n",
            lambda _: self._do(f"drain {name}", action),
            ("y",),
        )

    def _ask_ratio(self, row: TableRow, factor: float) -> None:
        name, info = row.key, row.info
        changed_limiter(info, info["samples_per_insert"] * factor)  # raises before anything is asked

        def change(text: str) -> None:
            limiter = changed_limiter(info, _number(text))

            def action(client: Client) -> str:
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    client.set_rate_limiter(name, limiter, timeout_s=LOCK_TIMEOUT_S)
                notes = "".join(f"; {warning.message}" for warning in warned)
                return f"{name}: {limiter.samples_per_insert:g} samples per insert{notes}"

            self._do(f"change the ratio of {name}", action)

        self.state.question = Question(
            f"{name}: samples per insert (now {info['samples_per_insert']:g}):",
            change,
            typed=f"{info['samples_per_insert'] * factor:.4g}",
            change=lambda text, key: f"{_number(text) * (STEP if key == '+' else 1 / STEP):.4g}",
        )

    def _ask_drop(self, row: TableRow) -> None:
        name = row.key
        size = counted(row.info["size"], "item") if row.info else "items"

        def drop(typed: str) -> None:
            if typed != name:
                raise ValueError(f"{typed!r} is not {name!r}: nothing was dropped")

            def action(client: Client) -> str:
                client.drop_table(name, timeout_s=LOCK_TIMEOUT_S)
                return f"{name} was dropped"

            self._do(f"drop {name}", action)

        self.state.question = Question(f"drop {name} and its {size}: type its name:", drop)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number; nothing was done") from None
