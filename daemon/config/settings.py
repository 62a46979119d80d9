"""All settings of a daemon, in the order in which they are shown."""

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
    Kind,
    choice,
)
from shmreplay.segments.page_policy import HUGE_PAGES, NUMA


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        key: its section and name in the file.
        flags: the first one names it on the command line.
        default: what it is where nobody says anything, of the kind that `kind` makes.
        reloads: whether a reload changes it while tables are in use.
        variable: in the environment; "" stands for one made of the key.
        metavar: what the flag's help calls its value; "" for one that has none, being on or off.
    """

    key: str
    kind: Kind
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
        """Whether its flag takes no value."""
        return not self.metavar


SETTINGS = (
    Setting(
        "daemon.socket",
        SOCKET,
        ("--socket", "--address"),
        "control socket (default: $SHMREPLAY_SOCKET, then $XDG_RUNTIME_DIR/shmreplay/default.sock, then "
        "/run/shmreplay/default.sock)",
        metavar="PATH",
        variable="SHMREPLAY_SOCKET",
    ),
    Setting(
        "daemon.instance",
        INSTANCE,
        ("--instance",),
        "names the segments; one daemon an instance (default: default)",
        "default",
        "NAME",
    ),
    Setting(
        "daemon.group",
        GROUP,
        ("--group",),
        "let members of this group connect (mode 0660); otherwise only this user",
        metavar="NAME",
    ),
    Setting(
        "daemon.keep_tables",
        SWITCH,
        ("--keep-tables",),
        "leave the tables in shared memory at the end, for the next daemon of the instance to take over",
        False,
        reloads=True,
    ),
    Setting("memory.directory", PATH, ("--directory",), "keep segments on this tmpfs instead of /dev/shm", None, "DIR"),
    Setting(
        "memory.huge_pages",
        choice(HUGE_PAGES),
        ("--huge-pages",),
        "pages of 2 MiB: auto takes those there are (the default), require makes no table without, never asks for none",
        "auto",
        f"{{{','.join(HUGE_PAGES)}}}",
    ),
    Setting(
        "memory.numa",
        choice(NUMA),
        ("--numa",),
        "interleave spreads segments over the machine's memory nodes",
        "default",
        f"{{{','.join(NUMA)}}}",
    ),
    Setting(
        "limits.clients",
        COUNT,
        ("--max-clients",),
        "connected clients at most (default: as many as open files allow)",
        metavar="N",
        reloads=True,
    ),
    Setting(
        "limits.memory",
        BYTES,
        ("--max-memory",),
        "shared memory of all tables at most, such as 64GiB (default: what the machine has)",
        metavar="BYTES",
        reloads=True,
    ),
    Setting(
        "limits.streams",
        COUNT,
        ("--max-streams",),
        "max_streams that a table may ask for at most (default: any)",
        metavar="N",
        reloads=True,
    ),
    Setting(
        "checkpoints.directory",
        PATH,
        ("--checkpoint-dir",),
        "where they are saved; without it there are none",
        metavar="DIR",
    ),
    Setting(
        "checkpoints.interval_s",
        SECONDS,
        ("--checkpoint-interval",),
        "save one every S seconds",
        metavar="S",
        reloads=True,
    ),
    Setting(
        "checkpoints.keep",
        COUNT,
        ("--checkpoint-keep",),
        "keep the newest N whole ones (default: 2)",
        2,
        "N",
        reloads=True,
    ),
    Setting(
        "checkpoints.at_stop",
        SWITCH,
        ("--checkpoint-at-stop",),
        "save one before ending, as on SIGTERM",
        False,
        reloads=True,
    ),
    Setting(
        "checkpoints.restore",
        SWITCH,
        ("--restore",),
        "begin with the newest one, unless tables are there",
        False,
    ),
    Setting(
        "metrics.listen",
        ENDPOINT,
        ("--metrics",),
        "OpenMetrics at this socket, or at a port of this machine such as 127.0.0.1:9464; needs prometheus_client",
        metavar="ADDRESS",
    ),
    Setting(
        "web.listen",
        ENDPOINT,
        ("--web",),
        "a page to look at, at this socket, or at a port of this machine such as 127.0.0.1:9470",
        metavar="ADDRESS",
    ),
    Setting(
        "log.level",
        choice(LEVELS),
        ("--log-level",),
        "default: INFO, embedded: WARNING",
        "INFO",
        "LEVEL",
        reloads=True,
    ),
    Setting(
        "log.format",
        choice(FORMATS),
        ("--log-format",),
        "text (the default) or json, a line each on stderr; journal, with fields, to systemd's journal",
        "text",
        f"{{{','.join(FORMATS)}}}",
        reloads=True,
    ),
)
BY_KEY = {setting.key: setting for setting in SETTINGS}
SECTIONS = tuple(dict.fromkeys(setting.section for setting in SETTINGS))
