"""Setting, and the list of all settings of a daemon, in the order in which they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shmreplay.daemon.config.logs import FORMATS, LEVELS
from shmreplay.daemon.config.setting_kinds import (
    BYTES,
    COUNT,
    ENDPOINT,
    GROUP,
    INSTANCE,
    PATH,
    SECONDS,
    SOCKET,
    SWITCH,
    SettingKind,
    choice,
)
from shmreplay.segments.page_policy import HUGE_PAGES, NUMA


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        key: section and name in the file, such as `log.level`.
        flags: its names on the command line; messages use the first one.
        default: its value if no source sets it, as `kind.of_value` returns it.
        reloads: whether a reload can change it while tables are in use.
        variable: environment variable; "" derives the name from the key.
        metavar: name of the value in the flag's help; "" for an on/off switch.
    """

    key: str
    kind: SettingKind
    flags: tuple[str, ...]
    help: str
    default: Any = None
    metavar: str = ""
    reloads: bool = False
    variable: str = ""

    def __post_init__(self) -> None:
        made = "SHMREPLAYD_" + self.key.removeprefix("daemon.").replace(".", "_").upper()
        object.__setattr__(self, "variable", self.variable or made)

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return not self.metavar


SETTINGS = (
    Setting(
        "daemon.socket",
        SOCKET,
        ("--socket", "--address"),
        "control socket (default: $SHMREPLAY_SOCKET, then $XDG_RUNTIME_DIR/shmreplay/default.sock, then, of users "
        "other than root, ~/.shmreplay/default.sock, then /run/shmreplay/default.sock)",
        metavar="PATH",
        variable="SHMREPLAY_SOCKET",
    ),
    Setting(
        "daemon.instance",
        INSTANCE,
        ("--instance",),
        "name of the instance, part of its segments' names; only one daemon may run it (default: default for root, "
        "user-UID for others)",
        "default",
        "NAME",
    ),
    Setting(
        "daemon.group",
        GROUP,
        ("--group",),
        "members of this group may connect (mode 0660); without it, only this user and root",
        metavar="NAME",
    ),
    Setting(
        "daemon.keep_tables",
        SWITCH,
        ("--keep-tables",),
        "at the stop, leave the tables in shared memory, for the next daemon of the instance",
        False,
        reloads=True,
    ),
    Setting("memory.directory", PATH, ("--directory",), "keep segments on this tmpfs instead of /dev/shm", None, "DIR"),
    Setting(
        "memory.huge_pages",
        choice(HUGE_PAGES),
        ("--huge-pages",),
        "2 MiB pages. auto (default): use them if available; require: create no table without; never: use none",
        "auto",
        f"{{{','.join(HUGE_PAGES)}}}",
    ),
    Setting(
        "memory.numa",
        choice(NUMA),
        ("--numa",),
        "interleave: spread segments over the machine's memory nodes",
        "default",
        f"{{{','.join(NUMA)}}}",
    ),
    Setting(
        "limits.clients",
        COUNT,
        ("--max-clients",),
        "most clients connected at a time (default: as many as the limit of open files allows)",
        metavar="N",
        reloads=True,
    ),
    Setting(
        "limits.memory",
        BYTES,
        ("--max-memory",),
        "most shared memory for all tables, such as 64GiB (default: what the machine has)",
        metavar="BYTES",
        reloads=True,
    ),
    Setting(
        "limits.streams",
        COUNT,
        ("--max-streams",),
        "largest max_streams that a table may have (default: no limit)",
        metavar="N",
        reloads=True,
    ),
    Setting(
        "checkpoints.directory",
        PATH,
        ("--checkpoint-dir",),
        "directory for checkpoints; without it none are saved",
        metavar="DIR",
    ),
    Setting(
        "checkpoints.interval_s",
        SECONDS,
        ("--checkpoint-interval",),
        "save a checkpoint every S seconds, if anything is new",
        metavar="S",
        reloads=True,
    ),
    Setting(
        "checkpoints.keep",
        COUNT,
        ("--checkpoint-keep",),
        "keep the newest N undamaged checkpoints (default: 2)",
        2,
        "N",
        reloads=True,
    ),
    Setting(
        "checkpoints.at_stop",
        SWITCH,
        ("--checkpoint-at-stop",),
        "save a checkpoint before the daemon stops, if anything is new",
        False,
        reloads=True,
    ),
    Setting(
        "checkpoints.restore",
        SWITCH,
        ("--restore",),
        "at the start, restore the newest checkpoint, unless tables were taken over",
        False,
    ),
    Setting(
        "metrics.listen",
        ENDPOINT,
        ("--metrics",),
        "serve OpenMetrics at this socket path, or at a loopback port such as 127.0.0.1:9464; needs prometheus_client",
        metavar="ADDRESS",
    ),
    Setting(
        "web.listen",
        ENDPOINT,
        ("--web",),
        "serve the web page at this socket path, or at a loopback port such as 127.0.0.1:9470",
        metavar="ADDRESS",
    ),
    Setting(
        "log.level",
        choice(LEVELS),
        ("--log-level",),
        "lowest level that is logged (default: INFO; embedded: WARNING)",
        "INFO",
        "LEVEL",
        reloads=True,
    ),
    Setting(
        "log.format",
        choice(FORMATS),
        ("--log-format",),
        "text (the default) or json: lines on stderr; journal: entries with fields in systemd's journal",
        "text",
        f"{{{','.join(FORMATS)}}}",
        reloads=True,
    ),
)
BY_KEY = {setting.key: setting for setting in SETTINGS}
SECTIONS = tuple(dict.fromkeys(setting.section for setting in SETTINGS))
