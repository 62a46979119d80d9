"""What a configuration comes to, in words or in JSON: for `shmreplayd --check-config`."""

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
    """Every setting as it will be in force and where it comes from, warnings, and the memory that the tables take."""
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
    """The same as an object.

    It has `settings` by key, each with its `value` and `where` it comes from, `warnings`, the names of `tables`, and
    the `table_bytes` of shared memory that they take.
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
    """The setting as JSON has it; null where nobody has set it and there is no default."""
    if key == "limits.clients":
        return config.max_clients
    value = given.value
    return value if value is None or isinstance(value, bool | int | float | str) else str(given)


def _in_force(config: DaemonConfig, key: str, given: SettingValue) -> str:
    """The setting; what the daemon does where nobody has set it, or where open files do not suffice for it."""
    if key == "limits.clients":
        return str(config.max_clients)
    return _UNSET.get(key, str(given)) if given.value is None else str(given)


def _origin(key: str, where: str) -> str:
    """The place without the key, which stands there already."""
    return where.removesuffix(f": {key}")
