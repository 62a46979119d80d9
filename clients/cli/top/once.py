"""The output of `shmreplay top --once`: the figures as plain lines and as JSON."""

from __future__ import annotations

import math
from typing import Any

from shmreplay.clients.cli.commands.clients import plain_process, plain_wait
from shmreplay.clients.cli.figures.daemon_figures import Wait
from shmreplay.clients.cli.top.columns import table_state
from shmreplay.clients.cli.top.rates import ClientRow, Snapshot, TableRow
from shmreplay.clients.cli.top.state import CLIENTS, TABLES, State
from shmreplay.clients.cli.top.text import Marks
from shmreplay.clients.cli.top.view import header, list_lines

NOT_CUT = 10**6  # cells: a terminal breaks long lines itself


def as_lines(snapshot: Snapshot, width: int, marks: Marks) -> list[str]:
    """The header and all rows of both lists."""
    state = State(math.inf, snapshot=snapshot)
    lines = header(state, snapshot.at_s, NOT_CUT)
    for tab in (TABLES, CLIENTS):
        state.tab = tab
        lines += [[("", "")], *list_lines(state, width, marks)]
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """`daemon`, `tables` and `clients`. A rate that is not known is None."""
    return {
        "daemon": snapshot.figures.daemon,
        "tables": [_table(row) for row in snapshot.tables],
        "clients": [_client(row) for row in snapshot.clients],
    }


def _table(row: TableRow) -> dict[str, Any]:
    figures = row.figures
    own: dict[str, Any] = {
        "name": figures.name,
        "arenas": figures.arenas,
        "state": table_state(row)[0],
        "failure": figures.failure,
        "inserts_per_s": row.inserts_per_s,
        "samples_per_s": row.samples_per_s,
        "age_p50": row.age_p50,
        "writers": figures.writers,
        "learners": figures.learners,
        "writers_gone": figures.writers_gone,
        "learners_gone": figures.learners_gone,
        "waits": [_wait(wait) for wait in figures.waits],
    }
    if row.info:
        low, high = row.bounds
        own |= {"fill": row.fill, "ratio": row.ratio, "target": row.target, "min_diff": low, "max_diff": high}
    return {**row.info, **own}


def _client(row: ClientRow) -> dict[str, Any]:
    rates = {name: getattr(row, name) for name in ("inserts_per_s", "samples_per_s", "updates_per_s")}
    return {**plain_process(row.figures), **rates, "waits": [_wait(wait) for wait in row.figures.waits]}


def _wait(wait: Wait) -> dict[str, Any]:
    return {**plain_wait(wait), "reason": wait.reason}
