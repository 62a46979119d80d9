"""DaemonConfig: all settings of a daemon. Flags come first, then the environment, the file, the defaults."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shmreplay.base.toml_file import TomlFile
from shmreplay.daemon.config.checkpoint_options import CheckpointOptions
from shmreplay.daemon.config.limits import Limits
from shmreplay.daemon.config.open_files import possible_clients
from shmreplay.daemon.config.setting_kinds import Group
from shmreplay.daemon.config.settings import SECTIONS, SETTINGS
from shmreplay.daemon.config.sources import (
    CONFIG_VARIABLE,
    TABLE_SECTIONS,
    SettingValue,
    SettingValues,
    settings_from_flags,
    settings_in_environment,
    settings_in_file,
)
from shmreplay.daemon.loop.endpoint import Endpoint
from shmreplay.errors import ShmReplayError
from shmreplay.estimates import estimate
from shmreplay.protocol import default_socket_paths, package_version
from shmreplay.segments.page_policy import PagePolicy
from shmreplay.segments.segment import default_instance
from shmreplay.tables.plan import by_arena
from shmreplay.tables.table import Table
from shmreplay.tables.table_config import TablesRefused, tables_in


class ConfigError(ShmReplayError):
    """The configuration is wrong. `problems` has one line for each mistake, which names its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True)
class DaemonConfig:
    """The settings of one daemon; the defaults are those of a system daemon without flags.

    Attributes:
        file: the configuration file, if there is one; a reload reads it again.
        tables: the tables that the file declares.
        notes: warnings about these tables, and about what the machine does not allow.
        settings: every setting by its key, with its source.
        is_check: only check and print the configuration; start no daemon.
        is_json: print the configuration as JSON.
    """

    socket: str
    instance: str = "default"
    group_id: int | None = None
    group_name: str | None = None
    keep_tables: bool = False
    directory: str | None = None
    pages: PagePolicy = field(default_factory=PagePolicy)
    discard: bool = False
    embedded: bool = False
    parent_pid: int | None = None
    ready_fd: int | None = None
    stop_fd: int | None = None
    log_level: str = "INFO"
    log_format: str = "text"
    max_clients: int = 1024
    limits: Limits = field(default_factory=Limits)
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    restore: bool = False
    metrics: Endpoint | None = None
    web: Endpoint | None = None
    file: str | None = None
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    settings: SettingValues = field(default_factory=dict)
    is_check: bool = False
    is_json: bool = False


def read_config(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> DaemonConfig:
    """Reads flags, environment and file. Raises ConfigError with all mistakes; exits with code 2 on unknown flags.

    An embedded daemon reads its flags alone: the process that starts it passes everything in them.
    """
    options = build_parser().parse_args(arguments)
    problems: list[str] = []
    if options.embedded and options.parent_pid is None:
        problems.append("--embedded needs --parent-pid: an embedded daemon stops when its parent ends")
    if options.json and not options.check_config:
        problems.append("--json needs --check-config; for the log use log.format (--log-format json)")
    values = settings_from_flags(vars(options), problems)
    file = None if options.embedded else _open(options.config or environment.get(CONFIG_VARIABLE) or None, problems)
    if not options.embedded:
        values = {**settings_in_environment(environment, problems), **values}
    if file is not None:
        values = {**settings_in_file(file, problems), **values}
    _check_together(values, problems)
    tables, notes = _tables(file, problems)
    if file is not None:
        _check_limits(tables, values, file, problems)
    if problems:
        raise ConfigError(problems)
    return _config(options, values, file, tables, notes)


def _open(path: str | None, problems: list[str]) -> TomlFile | None:
    if path is None:
        return None
    try:
        return TomlFile(os.path.abspath(path))
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror}")
    except ValueError as error:
        problems.append(str(error))
    return None


def _check_together(values: SettingValues, problems: list[str]) -> None:
    """Checks settings that need another one."""
    if "checkpoints.directory" in values:
        return
    for key in ("checkpoints.interval_s", "checkpoints.at_stop", "checkpoints.restore"):
        if key in values and values[key].value:
            problems.append(f"{values[key].where}: checkpoints need checkpoints.directory (--checkpoint-dir DIR)")


def _tables(file: TomlFile | None, problems: list[str]) -> tuple[list[Table], list[str]]:
    if file is None or not any(section in file.document for section in TABLE_SECTIONS):
        return [], []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            tables = tables_in(file)
        except TablesRefused as error:
            problems += error.problems
            tables = []
    return tables, [file.named(str(warning.message)) for warning in warned]


def _check_limits(tables: list[Table], values: SettingValues, file: TomlFile, problems: list[str]) -> None:
    """Checks the tables of the file against the configured limits, and against the largest possible arena."""
    memory, streams = (values[key].value if key in values else None for key in ("limits.memory", "limits.streams"))
    limits = Limits(memory, streams)
    for table in tables:
        try:
            limits.check_streams([table])
        except ValueError as error:
            problems.append(file.named(str(error)))
    num_bytes = 0
    for group in by_arena(tables).values():
        try:
            num_bytes += estimate(group).total_bytes
        except ValueError as error:
            problems.append(file.named(f"tables.{group[0].owner.name}: {error}"))
    try:
        limits.check_memory("what is declared in tables", num_bytes, 0)
    except ShmReplayError as error:
        problems.append(file.named(str(error)))


def _config(
    options: argparse.Namespace, values: SettingValues, file: TomlFile | None, tables: list[Table], notes: list[str]
) -> DaemonConfig:
    if options.embedded:
        values.setdefault("log.level", SettingValue("WARNING"))
    values.setdefault("daemon.socket", SettingValue(default_socket_paths()[0]))
    values.setdefault("daemon.instance", SettingValue(default_instance()))
    settings = {setting.key: values.get(setting.key, SettingValue(setting.default)) for setting in SETTINGS}
    value = {key: setting.value for key, setting in settings.items()}
    group: Group | None = value["daemon.group"]
    wanted, possible = value["limits.clients"], possible_clients()
    if wanted is not None and wanted > possible:
        where = settings["limits.clients"].where
        notes = [
            *notes,
            f"{where} is {wanted}, but the limit of open files allows only {possible} (LimitNOFILE, ulimit -n)",
        ]
    return DaemonConfig(
        socket=value["daemon.socket"],
        instance=value["daemon.instance"],
        group_id=group.id if group else None,
        group_name=group.name if group else None,
        keep_tables=value["daemon.keep_tables"],
        directory=value["memory.directory"],
        pages=PagePolicy(value["memory.huge_pages"], value["memory.numa"]),
        discard=options.discard,
        embedded=options.embedded,
        parent_pid=options.parent_pid,
        ready_fd=options.ready_fd,
        stop_fd=options.stop_fd,
        log_level=value["log.level"],
        log_format=value["log.format"],
        max_clients=possible if wanted is None else min(wanted, possible),
        limits=Limits(value["limits.memory"], value["limits.streams"]),
        checkpoints=CheckpointOptions(
            directory=value["checkpoints.directory"],
            interval_s=value["checkpoints.interval_s"],
            keep=value["checkpoints.keep"],
            at_stop=value["checkpoints.at_stop"],
        ),
        restore=value["checkpoints.restore"],
        metrics=value["metrics.listen"],
        web=value["web.listen"],
        file=file.path if file is not None else None,
        tables=tuple(tables),
        notes=tuple(notes),
        settings=settings,
        is_check=options.check_config,
        is_json=options.json,
    )


def build_parser() -> argparse.ArgumentParser:
    """The command line of shmreplayd."""
    parser = argparse.ArgumentParser(
        prog="shmreplayd",
        description="Owns the tables of shmreplay, in shared memory that actors and learners use.",
        epilog="SIGTERM and SIGINT stop the daemon. It drops all tables, unless --keep-tables is set. With "
        "--checkpoint-at-stop it saves a checkpoint first; if that fails, the tables stay, as after a crash. SIGHUP "
        "reads the file of --config again; without such a file it stops the daemon. SIGINT and SIGHUP are ignored if "
        "they were ignored at the start, as with nohup. A setting without a flag is taken from the environment "
        "($SHMREPLAYD_LOG_LEVEL and so on), then from the file.",
    )
    parser.add_argument("--version", action="version", version=f"shmreplayd {package_version()}")
    parser.add_argument("--config", metavar="FILE", help=f"settings and tables, in TOML (default: ${CONFIG_VARIABLE})")
    parser.add_argument("--check-config", action="store_true", help="check the configuration, print it, and exit")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    groups = {
        section: parser.add_argument_group("the daemon" if section == "daemon" else section) for section in SECTIONS
    }
    for setting in SETTINGS:
        add = groups[setting.section].add_argument
        if setting.is_switch:
            add(
                *setting.flags,
                dest=setting.key,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=setting.help,
            )
        else:
            add(*setting.flags, dest=setting.key, metavar=setting.metavar, help=setting.help)
    groups["memory"].add_argument(
        "--discard", action="store_true", help="remove segments of this instance that the daemon cannot take over"
    )
    embedded = parser.add_argument_group("for sr.Server, which starts an embedded daemon")
    embedded.add_argument(
        "--embedded", action="store_true", help="ignore signals; stop and remove everything when the parent ends"
    )
    embedded.add_argument("--parent-pid", type=int, metavar="N", help="process that started this one")
    embedded.add_argument("--ready-fd", type=int, metavar="N", help="descriptor to write to when clients can connect")
    embedded.add_argument("--stop-fd", type=int, metavar="N", help="socket on which the parent asks for the stop")
    return parser
