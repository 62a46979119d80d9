"""The frame: the lines that a screen shows of a state, each of exactly its width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmreplay.base.host_memory import show_bytes
from shmreplay.clients.cli.figures.daemon_figures import arena_state, memory_of
from shmreplay.clients.cli.terminal.printing import counted, plain
from shmreplay.clients.cli.top.columns import Column, layout
from shmreplay.clients.cli.top.details import details
from shmreplay.clients.cli.top.rates import Snapshot
from shmreplay.clients.cli.top.state import CLIENTS, TABLES, State
from shmreplay.clients.cli.top.text import Line, Marks, clip, clip_line, duration, wrap

FIXED_LINES = 3  # the tabs, the titles, the last line; the header is above them
MAX_WRONG_LINES = 3  # about what is wrong
LEAST_LIST = 3
LONG_READ_S = 1.0  # a read or view that lasts so long keeps chunks from being reused
HINTS = {
    TABLES: "p pause  r resume  d drain  s ratio  D drop  < > sort  / find  ? help  q quit",
    CLIENTS: "< > sort  R turn round  / find  ? help  q quit",
}
HELP = (
    ("up down j k", "select a row; page up, page down, home, end too"),
    ("tab", "tables or clients"),
    ("< > left right", "sort by the column before, after; R turns the order round"),
    ("/", "show only rows with a text in their name or role; esc: all"),
    ("p  r", "pause inserts, samples or both of the table; resume"),
    ("d", "drain: pause inserts until its items are sampled away"),
    ("s  +  -", "change the ratio of samples to inserts; confirm with enter"),
    ("D", "drop the table; asks you to type its name"),
    ("space", "freeze the figures, or unfreeze them"),
    ("q", "quit; changes of tables stay"),
)
COLUMNS_HELP = (
    ("fill", "how full the table is"),
    ("ratio reach", "samples per insert: reached/wanted; any: no limit"),
    ("bounds", "the limiter's difference: samples wait at the left end,"),
    ("", "inserts at the right end"),
    ("trend", "inserts and samples a second of late, on a wide screen"),
    ("age", "half of the items are younger, in inserts"),
    ("wr ln", "attached processes that have inserted, that have sampled"),
    ("state", "calls that wait and how long, pauses, lost processes"),
)


def frame(state: State, size: tuple[int, int], marks: Marks, *, now_s: float, marks_row: bool = False) -> list[Line]:
    """The lines of a screen of (columns, rows). `marks_row` marks the selected row with a sign, too, for no colours."""
    width, height = size
    lines = header(state, now_s, width)
    body = max(height - len(lines) - FIXED_LINES, 0)
    lines.append(_tabs(state))
    if state.shows_help:
        lines += _help(body + 1)
    else:
        lines += _lists(state, body, width, marks, marks_row)
    lines = lines[: max(height - 1, 0)]
    lines += [[("", "")] for _ in range(height - 1 - len(lines))]
    lines.append(_last(state, width))
    return [clip_line(line, width) for line in lines[:height]]


def header(state: State, now_s: float, width: int) -> list[Line]:
    """Three lines about the daemon, or more if more is wrong than fits into one. None is wider than the screen."""
    if state.snapshot is None:
        return [[("no figures yet", "dim")], [(state.problem or "", "bad")], [("", "")]]
    daemon = state.snapshot.figures.daemon
    first = (
        f"shmreplayd {daemon['version']}, instance {daemon['instance']}, pid {daemon['pid']}, "
        f"up {duration(daemon['uptime_s'])}"
    )
    memory = _fitting(memory_parts(state.snapshot), width)
    return [[(first, "bold")], [(memory, "")], *_state_lines(state, state.snapshot, now_s, width)]


def _fitting(parts: Sequence[str], width: int) -> str:
    """As many of the parts as fit, with ` | ` between them."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + 3 + len(part) <= width:
            text += f" | {part}"
    return text


def memory_parts(snapshot: Snapshot) -> list[str]:
    """What the line about memory and checkpoint says, the most important first."""
    arenas = list(snapshot.figures.arenas.values())
    total, used = memory_of(arenas)
    parts = [f"{show_bytes(total)} in {counted(len(arenas), 'arena')}"]
    if used is not None:
        pinned = sum(arena["stats"]["pinned_chunks"] for arena in arenas if "stats" in arena)
        parts.append(f"{used:.0%} of chunks in use" + (f", {pinned} pinned" if pinned else ""))
    checkpoint = snapshot.figures.daemon["checkpoint"]
    if checkpoint is None or checkpoint["path"] is None:
        parts.append("no checkpoint")
    else:
        parts.append(f"checkpoint {duration(checkpoint['saved_s_ago'])} old, {show_bytes(checkpoint['bytes'])}")
    huge = sum(arena["huge_bytes"] for arena in arenas)
    if huge:
        parts.append(f"{show_bytes(huge)} in huge pages")
    return parts


def _state_lines(state: State, snapshot: Snapshot, now_s: float, width: int) -> list[Line]:
    """What is wrong; if that leaves room in the first line, also the processes."""
    silent_s = now_s - snapshot.at_s
    if state.problem is not None:
        return _wrong_lines(f"no daemon for {duration(silent_s)}, trying again: {state.problem}", width)
    if silent_s > max(3 * state.interval_s, 2.0) and not state.is_frozen:
        return _wrong_lines(f"the daemon has not answered for {duration(silent_s)}; these figures are that old", width)
    daemon, arenas = snapshot.figures.daemon, snapshot.figures.arenas
    wrong = [f"arena {name}: {found}" for name, arena in arenas.items() if (found := arena_state(arena)) != "healthy"]
    if daemon["checkpoint"] is not None and daemon["checkpoint"]["error"] is not None:
        wrong.append(f"no checkpoint was saved: {daemon['checkpoint']['error']}")
    counts = [f"{counted(daemon['processes'], 'process', 'processes')}, {counted(daemon['deaths'], 'death')} seen"]
    stats = [arena["stats"] for arena in arenas.values() if "stats" in arena]
    oldest_s = max((each["oldest_lease_s"] or 0.0 for each in stats), default=0.0)
    if oldest_s >= LONG_READ_S:
        counts.append(f"oldest read {duration(oldest_s)}")
    counts.append(f"waited for locks {duration(sum(each['lock_wait_s'] for each in stats))} in all")
    if not wrong:
        return [[(_fitting(counts, width), "")]]
    text = "; ".join(wrong)
    if len(text) + 3 + len(counts[0]) <= width:
        return [[(text, "bad"), (" | " + _fitting(counts, width - len(text) - 3), "")]]
    return _wrong_lines(text, width)


def _wrong_lines(text: str, width: int) -> list[Line]:
    """A text about what is wrong, in a few lines."""
    lines = wrap(plain(text), width)
    if len(lines) > MAX_WRONG_LINES:
        lines = [*lines[: MAX_WRONG_LINES - 1], " ".join(lines[MAX_WRONG_LINES - 1 :])]
    return [[(clip(line, width).rstrip(), "bad")] for line in lines]


def _tabs(state: State) -> Line:
    snapshot = state.snapshot
    counts = {
        TABLES: len(snapshot.tables) if snapshot is not None else 0,
        CLIENTS: len(snapshot.clients) if snapshot is not None else 0,
    }
    line: Line = []
    for tab in (TABLES, CLIENTS):
        is_shown = tab == state.tab
        having = state.lists[tab].having
        text = f"{tab} {counts[tab]}" + (f" with {having!r}" if having else "")
        line.append((f"[{text}]" if is_shown else f" {text} ", "title" if is_shown else ""))
    frozen = "frozen; space unfreezes" if state.is_frozen else f"every {state.interval_s:g} s"
    line.append((f"  {frozen}   tab: the other list", "warn" if state.is_frozen else "dim"))
    return line


def _lists(state: State, body: int, width: int, marks: Marks, marks_row: bool) -> list[Line]:
    """Titles, rows, and the details of the selected row."""
    selected = state.selected()
    rows = state.rows()
    about = details(selected, width) if selected is not None else []
    room = max(body - len(rows), body // 2) if body > LEAST_LIST else 0
    about = about[: max(room - 1, 0)]
    num_rows = body - (len(about) + 1 if about else 0)
    shown = layout(state.columns, width - 1, _longest_name(rows))
    lines: list[Line] = [_titles(state, shown, marks)]
    _scroll(state, num_rows, len(rows))
    if not rows:
        nothing = "no tables" if state.tab == TABLES else "no processes are attached"
        if state.listing.having:
            nothing = f"none has {state.listing.having!r} in its name; esc shows all"
        lines.append([(f" {nothing}" if state.snapshot is not None else "", "dim")])
    first = state.listing.first
    for row in rows[first : first + num_rows]:
        is_selected = row is selected
        lines.append(
            row_line(row, shown, marks, is_selected=is_selected, sign=">" if is_selected and marks_row else " ")
        )
    lines += [[("", "")] for _ in range(num_rows + 1 - len(lines))]
    if about:
        more = len(rows) - first - num_rows
        lines.append([(f" {marks.down} {more} more" if more > 0 else "", "dim"), (marks.line * width, "dim")])
        lines += about
    return lines


def list_lines(state: State, width: int, marks: Marks) -> list[Line]:
    """Titles and all rows of the list that is shown, with no row selected. Names and the last column are not cut."""
    rows = state.rows()
    columns = [column for column in state.columns if not column.is_live]
    whole = {"name": _longest_name(rows), columns[-1].name: max(map(columns[-1].length, rows), default=0)}
    shown = [(column, max(cells, whole.get(column.name, 0))) for column, cells in layout(columns, width)]
    return [_titles(state, shown, marks)[1:], *(row_line(row, shown, marks) for row in rows)]


def _longest_name(rows: Sequence[Any]) -> int:
    return max((len(row.figures.name) for row in rows), default=0)


def _scroll(state: State, num_rows: int, total: int) -> None:
    listing = state.listing
    if listing.at < listing.first:
        listing.first = listing.at
    elif listing.at >= listing.first + num_rows:
        listing.first = listing.at - num_rows + 1
    listing.first = min(max(listing.first, 0), max(total - num_rows, 0))


def _titles(state: State, shown: Sequence[tuple[Column, int]], marks: Marks) -> Line:
    line: Line = [(" ", "title")]
    for number, (column, cells) in enumerate(shown):
        title = column.title
        if column.name == state.listing.order:
            sign = marks.down if state.listing.is_descending else marks.up
            title = f"{title[: cells - 1]}{sign}"
        text = title[:cells].rjust(cells) if column.to_right else title[:cells].ljust(cells)
        line.append((text + (" " if number < len(shown) - 1 else ""), "title"))
    return line


def row_line(
    row: Any, shown: Sequence[tuple[Column, int]], marks: Marks, *, is_selected: bool = False, sign: str = ""
) -> Line:
    """One row. The selected row has a single style."""
    line: Line = [(sign, "")]
    for number, (column, cells) in enumerate(shown):
        if number > 0:
            line.append((" ", ""))
        line.append(column.show(row, cells, marks))
    return [("".join(text for text, _ in line), "selected")] if is_selected else line


def _help(height: int) -> list[Line]:
    lines: list[Line] = [[(f"  {keys:<16}", "bold"), (text, "")] for keys, text in HELP]
    lines.append([("", "")])
    for title, text in COLUMNS_HELP:
        lines.append([(f"  {title:<16}", "bold"), (text, "")])
    return lines[:height]


def _last(state: State, width: int) -> Line:
    question = state.question
    if question is not None:
        if question.keys:
            return [(question.text, "bold")]
        typed = f" {question.typed}_"
        text = plain(question.text)
        # If there is not enough room, the typed text is what is shown.
        return [(text[max(len(text) + len(typed) - width, 0) :], "bold"), (typed, "")]
    if state.message:
        return [(plain(state.message), "bad" if state.is_refused else "good")]
    if state.shows_help:
        return [("any key: back", "dim")]
    return [(HINTS[state.tab], "dim")]
