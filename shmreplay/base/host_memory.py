"""How much memory is left: on the file system of the segments, in the host, and below the limits of cgroups.

If shared memory is promised but missing, the process that touches it first is killed: by SIGBUS if the file system is
full, by the OOM killer if memory or a cgroup is. So the room is checked before anything is allocated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shmreplay import _core
from shmreplay.base.process_limits import SHORTAGES
from shmreplay.errors import ShmReplayError

HUGE_PAGE_BYTES = _core.HUGE_PAGE_BYTES
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "hugetlbfs", "devtmpfs")
_UNLIMITED_BYTES = 1 << 62  # cgroup v1 writes "no limit" as a number just below 2^63


@dataclass(frozen=True)
class Mount:
    """A mounted file system, from /proc/self/mountinfo."""

    root: str  # which directory of the file system is mounted: "/" except for bind mounts and containers
    point: str
    kind: str
    options: str


@dataclass(frozen=True)
class MemoryLimit:
    """One limit on memory: its total, how much is free, and what a user can do."""

    name: str
    total_bytes: int
    free_bytes: int
    remedy: str


def mounts(proc: str = "/proc") -> list[Mount]:
    """All mounts of this process, in the order in which they were made."""
    found = []
    for line in _lines(f"{proc}/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if len(fields) >= 6 and len(tail) >= 3:
            found.append(Mount(_unescape(fields[3]), _unescape(fields[4]), tail[0], tail[2]))
    return found


def mount_of(directory: str, proc: str = "/proc") -> Mount | None:
    """The mount that has the directory: the newest of those with the longest matching mount point."""
    path = os.path.realpath(directory)
    holding = [mount for mount in mounts(proc) if os.path.commonpath([path, mount.point]) == mount.point]
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)


def check_room(needed_bytes: int, directory: str, purpose: str, proc: str = "/proc", hint: str = "") -> None:
    """Raises ShmReplayError unless `needed_bytes` more fit into the directory and into this process' memory limits.

    The error says how much is needed, total and free memory of the tightest limit, what to do, and `hint`. The check is
    a forecast: another process may take the memory a moment later. If the file system is full then, reserving the
    segment raises an error.
    """
    short = [room for room in rooms(directory, proc) if room.free_bytes < needed_bytes]
    if short:
        room = min(short, key=lambda room: room.free_bytes)
        raise ShmReplayError(
            f"{purpose} needs {show_bytes(needed_bytes)}, but {room.name} has {show_bytes(room.total_bytes)} in all "
            f"and {show_bytes(room.free_bytes)} free; {room.remedy}, or plan for less: a smaller max_size, max_streams "
            f"or capacity_steps{hint}"
        )


def check_memory(needed_bytes: int, purpose: str, proc: str = "/proc") -> None:
    """Raises ShmReplayError unless this process can allocate `needed_bytes` more of private memory.

    The error says how much is needed, total and free memory of the tightest limit, and what to do.
    """
    short = [room for room in (*_free_memory(proc), *_cgroup_rooms(proc)) if room.free_bytes < needed_bytes]
    if short:
        room = min(short, key=lambda room: room.free_bytes)
        raise ShmReplayError(
            f"{purpose} needs {show_bytes(needed_bytes)} of memory, but {room.name} has {show_bytes(room.total_bytes)} "
            f"in all and {show_bytes(room.free_bytes)} free; {room.remedy}"
        )


def rooms(directory: str, proc: str = "/proc") -> list[MemoryLimit]:
    """Returns every limit on new segments in the directory. Raises ShmReplayError if it is not one in memory."""
    mount = mount_of(directory, proc)
    if mount is not None and mount.kind not in MEMORY_FILE_SYSTEMS:
        raise ShmReplayError(
            f"segments cannot be in {directory}: it is on {mount.kind}, and shared memory needs a tmpfs; "
            "choose another directory, such as /dev/shm"
        )
    found = [_file_system_room(directory)]
    if mount is None or mount.kind != "hugetlbfs":  # huge pages are reserved already, so other memory does not matter
        found += [*_free_memory(proc), *_cgroup_rooms(proc)]
    return found


def _file_system_room(directory: str) -> MemoryLimit:
    status = os.statvfs(directory)
    return MemoryLimit(
        name=f"the file system at {directory}",
        total_bytes=status.f_blocks * status.f_frsize,
        free_bytes=status.f_bavail * status.f_frsize,
        remedy="make it larger (docker run --shm-size=…, an emptyDir with medium: Memory in Kubernetes, "
        f"mount -o remount,size=… {directory}) or give the daemon a --directory on a larger tmpfs",
    )


def _free_memory(proc: str) -> Iterator[MemoryLimit]:
    values = {}
    for line in _lines(f"{proc}/meminfo"):
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdigit():
            values[name] = int(number[0]) * 1024
    if "MemAvailable" in values and "MemTotal" in values:
        yield MemoryLimit("this machine's memory", values["MemTotal"], values["MemAvailable"], "free some memory")


def _cgroup_rooms(proc: str) -> Iterator[MemoryLimit]:
    for line in _lines(f"{proc}/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _walk_cgroup("cgroup2", "", path, proc)
        elif "memory" in controllers.split(","):
            yield from _walk_cgroup("cgroup", "memory", path, proc)


def _walk_cgroup(kind: str, controller: str, path: str, proc: str) -> Iterator[MemoryLimit]:
    """Yields the limits from the process' cgroup up to the visible root."""
    mount = next(
        (m for m in mounts(proc) if m.kind == kind and (not controller or controller in m.options.split(","))), None
    )
    if mount is None:
        return
    top = Path(mount.point)
    inside = path.removeprefix(mount.root) if mount.root != "/" else path
    folder = top / inside.lstrip("/")
    if ".." in folder.parts or not folder.is_dir():  # a container that sees its cgroup as the root
        folder = top
    while True:
        room = _cgroup_v2_room(folder) if kind == "cgroup2" else _cgroup_v1_room(folder)
        if room is not None:
            yield room
        if folder == top:
            return
        folder = folder.parent


def _cgroup_v2_room(folder: Path) -> MemoryLimit | None:
    return _cgroup_room(folder, "memory.max", "memory.current", ("inactive_file", "active_file"), "MemoryMax=")


def _cgroup_v1_room(folder: Path) -> MemoryLimit | None:
    reclaimable = ("total_inactive_file", "total_active_file")
    return _cgroup_room(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", reclaimable, "memory limit")


def _cgroup_room(
    folder: Path, limit_file: str, usage_file: str, cache: tuple[str, str], knob: str
) -> MemoryLimit | None:
    limit, usage = _number(folder / limit_file), _number(folder / usage_file)
    if limit is None or usage is None or limit >= _UNLIMITED_BYTES:
        return None
    for line in _lines(str(folder / "memory.stat")):  # page cache can be reclaimed, shared memory cannot
        name, _, value = line.partition(" ")
        if name in cache and value.strip().isdigit():
            usage -= int(value)
    return MemoryLimit(
        name=f"the cgroup {folder}",
        total_bytes=limit,
        free_bytes=max(0, limit - max(0, usage)),
        remedy=f"raise its {knob} (docker run --memory=…, resources.limits.memory in Kubernetes)",
    )


def _number(path: Path) -> int | None:
    text = next(iter(_lines(str(path))), "").strip()
    return int(text) if text.isdigit() else None


def _lines(path: str) -> list[str]:
    """The file's lines; none if it is not there: a limit that the kernel or container hides is ignored.

    Raises OSError if this process lacks what it takes to look, as a file descriptor.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return []


def _unescape(field: str) -> str:
    return field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def show_bytes(num_bytes: int) -> str:
    """A size for people: `512 B`, `63.9 MiB`, `1.5 GiB`."""
    if num_bytes < 1024:
        return f"{num_bytes} B"
    size, unit = float(num_bytes), "B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):  # noqa: B007
        size /= 1024
        if size < 1024:
            break
    return f"{size:.1f} {unit}"


def whole_huge_bytes(num_bytes: int) -> int:
    """How many bytes of a segment of `num_bytes` can be in huge pages."""
    return num_bytes - num_bytes % HUGE_PAGE_BYTES
