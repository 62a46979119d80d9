"""What a daemon was told to be: flags today, and the one place where other sources of settings join them."""

from __future__ import annotations

import argparse
import grp
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass, field

from shmreplay.daemon.checkpoint import CheckpointOptions
from shmreplay.errors import ShmReplayError
from shmreplay.page_policy import HUGE_PAGES, NUMA, PagePolicy
from shmreplay.protocol import default_socket_paths, package_version, socket_path
from shmreplay.segments import check_name

SPARE_FDS = 128  # for segments, pidfds of clients that come next, the log, and Python's own
FDS_PER_CLIENT = 2  # its socket and its process' pidfd


@dataclass(frozen=True)
class DaemonConfig:
    """The settings of one daemon; the defaults are those of a system daemon without flags."""

    socket: str
    instance: str = "default"
    group_id: int | None = None
    group_name: str | None = None
    directory: str | None = None
    pages: PagePolicy = field(default_factory=PagePolicy)
    discard: bool = False
    embedded: bool = False
    parent_pid: int | None = None
    ready_fd: int | None = None
    log_level: str = "INFO"
    max_clients: int = 1024
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    restore: bool = False


def parse_arguments(arguments: Sequence[str] | None = None) -> DaemonConfig:
    """Reads the command line. Exits with a usage message (code 2) when it does not fit together."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.embedded and options.parent_pid is None:
        parser.error("--embedded needs --parent-pid: an embedded daemon ends with its parent")
    if options.checkpoint_dir is None and (
        options.checkpoint_interval or options.checkpoint_at_stop or options.restore
    ):
        parser.error("--checkpoint-interval, --checkpoint-at-stop and --restore need --checkpoint-dir")
    try:
        group_id, group_name = _find_group(options.group)
        return DaemonConfig(
            socket=socket_path(options.socket or default_socket_paths()[0]),
            instance=check_name("instance", options.instance),
            group_id=group_id,
            group_name=group_name,
            directory=options.directory,
            pages=PagePolicy(options.huge_pages, options.numa),
            discard=options.discard,
            embedded=options.embedded,
            parent_pid=options.parent_pid,
            ready_fd=options.ready_fd,
            log_level=options.log_level or ("WARNING" if options.embedded else "INFO"),
            max_clients=_raise_fd_limit(),
            checkpoints=CheckpointOptions(
                directory=options.checkpoint_dir,
                interval_s=options.checkpoint_interval,
                keep=options.checkpoint_keep,
                at_stop=options.checkpoint_at_stop,
            ),
            restore=options.restore,
        )
    except ValueError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shmreplayd",
        description="Owns the tables of shmreplay: shared memory that actors and learners work in.",
        epilog="SIGTERM, SIGINT and SIGHUP drop all tables (after a checkpoint, with --checkpoint-at-stop; if that "
        "fails they stay, as after a crash). SIGINT and SIGHUP do nothing if ignored at the start, as by nohup.",
    )
    add = parser.add_argument
    add("--socket", "--address", metavar="PATH", help="control socket (default: $SHMREPLAY_SOCKET, then "
        "$XDG_RUNTIME_DIR/shmreplay/default.sock, then /run/shmreplay/default.sock)")  # fmt: skip
    add("--instance", metavar="NAME", default="default", help="names the segments; one daemon an instance")
    add("--group", metavar="NAME", help="let members of this group connect (mode 0660); otherwise only this user")
    add("--directory", metavar="DIR", help="keep segments on this tmpfs instead of /dev/shm")
    add("--huge-pages", choices=HUGE_PAGES, default="auto", help="pages of 2 MiB: auto takes those there are (the "
        "default), require makes no table without, never asks for none")  # fmt: skip
    add("--numa", choices=NUMA, default="default", help="interleave spreads segments over the machine's memory nodes")
    add("--discard", action="store_true", help="remove segments of this instance that cannot be taken over")
    saving = parser.add_argument_group("checkpoints")
    saving.add_argument("--checkpoint-dir", metavar="DIR", help="where they are saved; without it there are none")
    saving.add_argument("--checkpoint-interval", type=_positive, metavar="S", help="save one every S seconds")
    saving.add_argument(
        "--checkpoint-keep", type=_count, default=2, metavar="N", help="keep the newest N whole ones (default: 2)"
    )
    saving.add_argument("--checkpoint-at-stop", action="store_true", help="save one before ending, as on SIGTERM")
    saving.add_argument("--restore", action="store_true", help="begin with the newest one, unless tables are there")
    add("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="default: INFO, embedded: WARNING")
    add("--version", action="version", version=f"shmreplayd {package_version()}")
    embedded = parser.add_argument_group("for sr.Server, which starts a daemon of its own")
    embedded.add_argument("--embedded", action="store_true", help="end, and remove everything, when the parent ends")
    embedded.add_argument("--parent-pid", type=int, metavar="N", help="the process that started this one")
    embedded.add_argument("--ready-fd", type=int, metavar="N", help="written to when clients can connect")
    return parser


def _positive(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1")
    return number


def _find_group(name: str | None) -> tuple[int | None, str | None]:
    if name is None:
        return None, None
    try:
        entry = grp.getgrgid(int(name)) if name.isdigit() else grp.getgrnam(name)
    except KeyError:
        raise ValueError(f"--group {name}: no such group on this machine (see `getent group`)") from None
    return entry.gr_gid, entry.gr_name


def _raise_fd_limit() -> int:
    """Takes all descriptors that this process may have, and returns how many clients they suffice for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2**20 if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(8, (wanted - SPARE_FDS) // FDS_PER_CLIENT)


def make_socket_directory(config: DaemonConfig) -> bool:
    """Makes the directory of the socket if it is missing; True if it was made. An embedded daemon's must be new."""
    directory = os.path.dirname(config.socket)
    if not config.embedded and os.path.isdir(directory):
        return False
    try:
        os.mkdir(directory, 0o700)
    except FileNotFoundError as error:
        parent = os.path.dirname(directory)
        raise ShmReplayError(
            f"cannot make the socket's directory {directory}: {parent} is not there, and only one level is made; make "
            "it, or choose another --socket"
        ) from error
    except OSError as error:
        hint = f", such as {_own_socket()}" if isinstance(error, PermissionError) else ""
        raise ShmReplayError(
            f"cannot make the socket's directory {directory}: {error.strerror}; choose another --socket{hint}"
        ) from error
    if config.group_id is not None:
        _share(directory, config.group_id, config.group_name)
    return True


def _share(directory: str, group_id: int, group_name: str | None) -> None:
    """Lets a group into a directory that was just made. Removes it again if that cannot be."""
    try:
        os.chown(directory, -1, group_id)
        os.chmod(directory, 0o750)
    except OSError as error:
        os.rmdir(directory)
        raise ShmReplayError(
            f"cannot give the socket's directory {directory} to group {group_name}: {error.strerror}; run the daemon "
            "as a member of it"
        ) from error


def _own_socket() -> str:
    """A socket that any user can have, and how clients find it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isdir(runtime):
        return f"{os.path.join(runtime, 'shmreplay', 'default.sock')}, where clients look by themselves"
    return f"{os.path.expanduser('~/.shmreplay/default.sock')}, and give clients that path in SHMREPLAY_SOCKET"
