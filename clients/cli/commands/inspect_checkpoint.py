"""`shmreplay inspect PATH`: what a checkpoint contains. It needs no daemon."""

from __future__ import annotations

import datetime
import os
import sys
from typing import Any

from shmreplay.base.host_memory import show_bytes
from shmreplay.base.json_values import to_json
from shmreplay.checkpoints.checkpoint_file import verify
from shmreplay.clients.cli.terminal.options import checkpoints_at
from shmreplay.clients.cli.terminal.printing import format_rows
from shmreplay.errors import CheckpointFailed, DamagedCheckpoint

FIGURES = ("size", "inserts", "samples")


def inspect_checkpoint(where: str, as_json: bool) -> int:
    """Reads the whole checkpoint, then prints its origin and one line a table."""
    path, found, damages = _read(where)
    for damage in damages:
        print(f"shmreplay inspect: {damage}; reading the one before it", file=sys.stderr)
    tables = [
        {"table": table["name"], "arena": state["arena"], **{figure: table[figure] for figure in FIGURES}}
        for state in found["states"]
        for table in state["tables"]
    ]
    created = datetime.datetime.fromtimestamp(found["created"], datetime.timezone.utc).isoformat(timespec="seconds")
    if as_json:
        names = ("label", "package", "layout_version", "num_bytes")
        print(to_json({"path": path, "created": created, **{n: found[n] for n in names}, "tables": tables}))
        return 0
    print(f"{path}: {show_bytes(found['num_bytes'])}, of {created}, by shmreplay {found['package']}")
    if tables:
        rows = [(row["table"], *(row[figure] for figure in FIGURES), row["arena"]) for row in tables]
        print(format_rows(("table", *FIGURES, "arena"), rows))
    return 0


def _read(path: str) -> tuple[str, dict[str, Any], list[DamagedCheckpoint]]:
    """A checkpoint, or the newest undamaged one of a directory: its path, its contents, and the damage of newer ones.

    Raises DamagedCheckpoint, CheckpointFailed if the directory has no undamaged one, OSError.
    """
    damages: list[DamagedCheckpoint] = []
    for found in checkpoints_at(path):
        try:
            return found, verify(found), damages
        except DamagedCheckpoint as error:
            damages.append(error)
    if not os.path.isdir(path):
        raise damages[0]
    raise CheckpointFailed("; ".join([f"there is no whole checkpoint in {path}", *map(str, damages)]))
