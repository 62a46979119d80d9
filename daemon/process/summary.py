"""The output of `shmreplayd --check-config`, as text or JSON."""

from __future__ import annotations

import json

from shmreplay.base.host_memory import show_bytes
from shmreplay.daemon.config.configuration import DaemonConfig
from shmreplay.daemon.config.sources import SettingValue
from shmreplay.daemon.process.preflight import num_bytes_of_tables, preflight_warnings
from shmreplay.segments.segment import SHARED_MEMORY
from shmreplay.tables.plan import by_arena

_UNSET = {
    "memory.directory": SHARED_MEMORY,
    "limits.memory": "what the machine has",
    "limits.streams": "any number",
}


def summary(config: DaemonConfig) -> str:
    """Every setting with its value and source, warnings, and the memory that the tables take."""
    lines = [
        f"{key} = {_in_force(config, key, given)}  ({_origin(key, given.where)})"
        for key, given in config.settings.items()
    ]
    lines += [f"warning: {note}" for note in (*config.notes, *preflight_warnings(config))]
    if config.tables:
        num_arenas = len(by_arena(config.tables))
        names = ", ".join(table.name for table in config.tables)
        lines.append(
            f"tables {names}: {show_bytes(num_bytes_of_tables(config))} of shared memory in {num_arenas} arena"
            f"{'s' if num_arenas > 1 else ''}; `shmreplay plan {config.file}` has every term"
        )
    return "\n".join(lines)


def summary_json(config: DaemonConfig) -> str:
    """The same as a JSON object.

    It has `settings` by key, each with `value` and `where` (its source), `warnings`, the names of `tables`, and
    `table_bytes`, the shared memory that they take.
    """
    plain = {
        "settings": {
            key: {"value": _plain(config, key, given), "where": _origin(key, given.where)}
            for key, given in config.settings.items()
        },
        "warnings": [*config.notes, *preflight_warnings(config)],
        "tables": [table.name for table in config.tables],
        "table_bytes": num_bytes_of_tables(config),
    }
    return json.dumps(plain, indent=2)


def _plain(config: DaemonConfig, key: str, given: SettingValue) -> object:
    """The value for JSON; null if it is not set and has no default."""
    if key == "limits.clients":
        return config.max_clients
    value = given.value
    return value if value is None or isinstance(value, bool | int | float | str) else str(given)


def _in_force(config: DaemonConfig, key: str, given: SettingValue) -> str:
    """The value as text; if it is not set, or the limit of open files is too low for it, what the daemon will do."""
    if key == "limits.clients":
        return str(config.max_clients)
    return _UNSET.get(key, str(given)) if given.value is None else str(given)


def _origin(key: str, where: str) -> str:
    """The source without the key, which the line already has."""
    return where.removesuffix(f": {key}")
