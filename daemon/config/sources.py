"""The sources of settings: file, environment and flags. Each reader returns the values it finds, by key.

A wrong value is left out and adds a line to `problems`, so that the user sees all mistakes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shmreplay.base.checks import known_instead
from shmreplay.base.toml_file import TomlFile
from shmreplay.daemon.config.setting_kinds import Group
from shmreplay.daemon.config.settings import BY_KEY, SECTIONS, SETTINGS, Setting

CONFIG_VARIABLE = "SHMREPLAYD_CONFIG"
TABLE_SECTIONS = ("arenas", "tables")  # these declare tables: see shmreplay.tables.table_config
_PREFIX = "SHMREPLAYD_"


@dataclass(frozen=True)
class SettingValue:
    """A value and its source: `/etc/x.toml:3: log.level`, `$SHMREPLAYD_LOG_LEVEL`, `--log-level` or `default`."""

    value: Any
    where: str = "default"

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, Group):
            return self.value.name
        return "unset" if self.value is None else str(self.value)


SettingValues = dict[str, SettingValue]


def settings_in_file(file: TomlFile, problems: list[str]) -> SettingValues:
    """Reads the settings of a file. Skips the sections that declare tables."""
    found: SettingValues = {}
    for section, entry in file.document.items():
        if section in TABLE_SECTIONS:
            continue
        if section not in SECTIONS:
            instead = known_instead(section, (*SECTIONS, *TABLE_SECTIONS), "the file")
            problems.append(file.named(f"{section} is not known; {instead}"))
        elif not isinstance(entry, Mapping):
            problems.append(file.named(f"{section} is {entry!r:.100}; expected a section, [{section}]"))
        else:
            for name, value in entry.items():
                _take(file, section, name, value, found, problems)
    return found


def _take(file: TomlFile, section: str, name: str, value: object, found: SettingValues, problems: list[str]) -> None:
    key = f"{section}.{name}"
    where = file.named(key)
    setting = BY_KEY.get(key)
    if setting is None:
        names = [setting.key.partition(".")[2] for setting in SETTINGS if setting.section == section]
        problems.append(f"{where} is not known; {known_instead(name, names, f'[{section}]')}")
        return
    try:
        found[key] = SettingValue(setting.kind.of_value(value), where)
    except ValueError as error:
        problems.append(f"{where} {error}")


def settings_in_environment(environment: Mapping[str, str], problems: list[str]) -> SettingValues:
    """Reads the settings of the environment. An empty variable counts as not set."""
    by_variable = {setting.variable: setting for setting in SETTINGS}
    found: SettingValues = {}
    for variable, text in environment.items():
        if setting := by_variable.get(variable):
            if text:
                _take_text(setting, text, f"${variable}", found, problems)
        elif variable.startswith(_PREFIX) and variable != CONFIG_VARIABLE:
            names = [name for name in (*by_variable, CONFIG_VARIABLE) if name.startswith(_PREFIX)]
            problems.append(f"${variable} is not known; {known_instead(variable, names, 'shmreplayd')}")
    return found


def settings_from_flags(flags: Mapping[str, object], problems: list[str]) -> SettingValues:
    """Reads the settings of the command line.

    Args:
        flags: by key, the text of the flag, True or False for a switch, or None if it was not given.
    """
    found: SettingValues = {}
    for setting in SETTINGS:
        value = flags[setting.key]
        if isinstance(value, bool):
            found[setting.key] = SettingValue(value, setting.flags[0])
        elif value is not None:
            _take_text(setting, str(value), setting.flags[0], found, problems)
    return found


def _take_text(setting: Setting, text: str, where: str, found: SettingValues, problems: list[str]) -> None:
    try:
        found[setting.key] = SettingValue(setting.kind.of_value(setting.kind.of_text(text)), where)
    except ValueError as error:
        problems.append(f"{where} {error}")
