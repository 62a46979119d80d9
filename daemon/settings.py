"""All settings of a daemon, in the order in which they are shown."""

from __future__ import annotations

from shmreplay.daemon.logs import FORMATS, LEVELS
from shmreplay.daemon.setting import (
    BYTES,
    COUNT,
    GROUP,
    INSTANCE,
    PATH,
    SECONDS,
    SOCKET,
    SWITCH,
    Setting,
    choice,
)
from shmreplay.page_policy import HUGE_PAGES, NUMA

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
