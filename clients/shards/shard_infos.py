"""The figures of a table's shards, joined into those of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from shmreplay.clients.tables.info import TableInfo
from shmreplay.tables.table import Table

# Everything else adds up.
_SAME = ("max_times_sampled", "samples_per_insert", "sampler", "remover")
_ALL = ("paused_inserts", "paused_samples")


def join_shards(entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The entries of tables by name, with one entry for all shards of a table: its `arena` is a list.

    If a shard has no figures, as after its arena failed, the entry has only spec and arenas.
    """
    found: dict[str, dict[str, Any]] = {}
    shards: dict[str, list[dict[str, Any]]] = {}
    for name, entry in entries.items():
        if (whole := entry["spec"].whole) is None:
            found[name] = entry
        else:
            shards.setdefault(whole.name, []).append(entry)
    for name, of_shards in shards.items():
        whole = of_shards[0]["spec"].whole
        names = set.intersection(*(set(entry) for entry in of_shards)) - {"spec", "arena"}
        values = {each: [entry[each] for entry in of_shards] for each in of_shards[0] if each in names}
        found[name] = {**joined(whole.name, values), "spec": whole, "arena": [entry["arena"] for entry in of_shards]}
    return found


def joined_info(whole: Table, infos: Sequence[TableInfo]) -> TableInfo:
    """The table's info: counters and the limiter's bounds are added up. Each shard was read at another moment."""
    values = {field.name: [getattr(info, field.name) for info in infos] for field in fields(TableInfo)}
    return TableInfo(**joined(whole.name, values))


def joined(table: str, values: dict[str, list[Any]]) -> dict[str, Any]:
    """Joins figures by name, each a list with one number a shard. Unknown names are added up."""
    found: dict[str, Any] = {}
    for name, of_shards in values.items():
        if name == "name":
            found[name] = table
        elif name in _SAME:
            found[name] = of_shards[0]
        elif name in _ALL:
            found[name] = all(of_shards)
        elif name == "max_priority":
            found[name] = max(of_shards)
        elif name == "min_priority":
            found[name] = min((value for value in of_shards if value > 0), default=0.0)
        elif name.startswith("last_"):
            found[name] = min((value for value in of_shards if value is not None), default=None)
        elif isinstance(of_shards[0], bool):
            found[name] = any(of_shards)
        else:
            found[name] = sum(of_shards)
    return found
