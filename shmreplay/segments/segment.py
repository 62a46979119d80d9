"""The shared-memory files of an arena: their names, creating and reserving them, and checking received ones.

An arena is two POSIX shared-memory objects, `/shmreplay.<instance>.<arena>.index` and `.data`. A store with another
directory (another tmpfs, hugetlbfs) has plain files of the same names there. Dots separate the parts of a name, and no
part has a dot, so names are unambiguous.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import posix_ipc

from shmreplay import _core
from shmreplay.base.host_memory import show_bytes
from shmreplay.errors import SegmentFailed, ShmReplayError
from shmreplay.segments.page_policy import PagePolicy

SHARED_MEMORY = "/dev/shm"  # where Linux keeps the objects of shm_open
SLICE_BYTES = 64 * 2**20  # reserved in one call: hundredths of a second, so that cancels and signals are handled soon
_PREFIX = "shmreplay"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARENA_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}(~[0-9]{1,3})?")  # ~ and a number: a shard
_EMBEDDED = re.compile(r"embedded-[0-9]{1,9}-[0-9a-f]+")

Progress = Callable[[int], None]  # called with the bytes reserved so far; an exception ends the reservation


class Doing(Enum):
    """What a mark says of its arenas (see `arena_mark`); also the end of its file's name."""

    RESTORING = "restoring"
    DROPPING = "dropping"


_DOINGS = {doing.value for doing in Doing}


@dataclass(frozen=True)
class SegmentNames:
    """The two file names of an arena."""

    index: str
    data: str


def check_name(kind: str, name: str) -> str:
    """Returns the name of an instance or arena. Raises ValueError if it cannot be part of a segment's name."""
    if not isinstance(name, str) or not (_ARENA_NAME if kind == "arena" else _NAME).fullmatch(name):
        raise ValueError(f"{kind} name {name!r}: expected 1 to 64 of the characters A-Z a-z 0-9 _ -")
    return name


def segment_names(instance: str, arena: str) -> SegmentNames:
    """The file names of an arena's segments. Raises ValueError on names with other characters than [A-Za-z0-9_-]."""
    stem = f"{_PREFIX}.{check_name('instance', instance)}.{check_name('arena', arena)}"
    return SegmentNames(f"{stem}.index", f"{stem}.data")


def lock_name(instance: str) -> str:
    """The file name of an instance's lock, beside its segments."""
    return f"{_PREFIX}.{check_name('instance', instance)}.lock"


def mark_name(instance: str, arena: str, doing: Doing) -> str:
    """The file name of a mark of several arenas that begins with this one: see `arena_mark`."""
    return f"{_PREFIX}.{check_name('instance', instance)}.{check_name('arena', arena)}.{doing.value}"


def default_instance() -> str:
    """The instance of a daemon that is given none: `default` for root, `user-<uid>` for others.

    Files of all users lie in one directory, where nobody can take another user's lock, not even after a death.
    """
    user = os.geteuid()
    return "default" if user == 0 else f"user-{user}"


def embedded_instance(parent_pid: int, token: str) -> str:
    """The instance name of an embedded daemon."""
    return f"embedded-{parent_pid}-{token}"


def is_embedded(instance: str) -> bool:
    """Whether this is the instance name of an embedded daemon."""
    return _EMBEDDED.fullmatch(instance) is not None


class SegmentStore:
    """The place of a daemon's segments: /dev/shm through posix_ipc, or a directory on another tmpfs.

    `pages` applies to segments that are created here.
    """

    def __init__(self, directory: str | None = None, pages: PagePolicy | None = None) -> None:
        self.pages = pages or PagePolicy()
        self.directory = os.path.realpath(directory) if directory else SHARED_MEMORY
        self._is_posix = directory is None
        if not os.path.isdir(self.directory):
            remedy = "mount a tmpfs there" if directory is None else "create it on a tmpfs"
            raise ShmReplayError(f"the directory for segments {self.directory} does not exist; {remedy}")

    def path(self, name: str) -> str:
        """The file's path, for messages and for the lock file."""
        return os.path.join(self.directory, name)

    def create(self, name: str) -> int:
        """Creates an empty segment that only this user may open (mode 0600). Returns its descriptor.

        Raises ShmReplayError if the name is taken.
        """
        try:
            if self._is_posix:
                fd: int = posix_ipc.SharedMemory(f"/{name}", flags=posix_ipc.O_CREX, mode=0o600).fd
                return fd
            return os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except (posix_ipc.ExistentialError, FileExistsError):
            raise ShmReplayError(
                f"segment {self.path(name)} exists already and was not adopted; "
                "remove it, or start the daemon once with --discard"
            ) from None
        except (posix_ipc.Error, posix_ipc.PermissionsError, OSError) as error:
            raise ShmReplayError(f"segment {self.path(name)} cannot be created: {error}") from error

    def open(self, name: str) -> int:
        """Opens an existing segment. Raises OSError as open(2) does; refuses a symbolic link."""
        return os.open(self.path(name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    def unlink(self, name: str) -> bool:
        """Removes a segment's name. Returns False if there was none. Existing mappings stay valid.

        Raises ShmReplayError if it cannot be removed: a directory, or another user's file.
        """
        try:
            if self._is_posix:
                posix_ipc.unlink_shared_memory(f"/{name}")
            else:
                os.unlink(self.path(name))
        except (posix_ipc.ExistentialError, FileNotFoundError):
            return False
        except (posix_ipc.Error, OSError) as error:
            raise ShmReplayError(f"segment {self.path(name)} cannot be removed: {error}") from error
        return True

    def arenas(self, instance: str) -> dict[str, set[str]]:
        """The arenas of an instance that have files here, each with the kinds found: `index`, `data`.

        Ignores files whose arena name is impossible: another program made them.
        """
        found: dict[str, set[str]] = {}
        for file_name in os.listdir(self.directory):
            parts = file_name.split(".")
            if len(parts) != 4 or parts[:2] != [_PREFIX, instance] or not _ARENA_NAME.fullmatch(parts[2]):
                continue
            if parts[3] in ("index", "data"):
                found.setdefault(parts[2], set()).add(parts[3])
        return found

    def marks(self, instance: str) -> list[str]:
        """The file names of an instance's marks."""
        found = []
        for file_name in os.listdir(self.directory):
            parts = file_name.split(".")
            if len(parts) == 4 and parts[:2] == [_PREFIX, instance] and parts[3] in _DOINGS:
                found.append(file_name)
        return found

    def locked_instances(self) -> list[str]:
        """The instances whose lock file is here, whether or not a daemon holds it."""
        parts = [file_name.split(".") for file_name in os.listdir(self.directory)]
        return [part[1] for part in parts if len(part) == 3 and part[0] == _PREFIX and part[2] == "lock"]

    def files(self, instance: str) -> list[str]:
        """The names of an instance's files: segments, marks and the lock."""
        return [file for file in os.listdir(self.directory) if _instance_of(file) == instance]

    def instances(self) -> list[str]:
        """The instances that have a file here, sorted."""
        return sorted({name for file in os.listdir(self.directory) if (name := _instance_of(file)) is not None})

    def remove_arena(self, instance: str, arena: str) -> None:
        """Unlinks both segments, the index first: a lone data segment is then always left by a removal."""
        names = segment_names(instance, arena)
        self.unlink(names.index)
        self.unlink(names.data)

    def round_up(self, num_bytes: int) -> int:
        """Rounds a size up to whole pages of this file system."""
        page = os.statvfs(self.directory).f_bsize
        return -(-num_bytes // page) * page


def _instance_of(file_name: str) -> str | None:
    """The instance that a file belongs to; None if it is not one of ours."""
    parts = file_name.split(".")
    is_lock = len(parts) == 3 and parts[2] == "lock"
    is_arenas = len(parts) == 4 and parts[3] in ("index", "data", *_DOINGS) and _ARENA_NAME.fullmatch(parts[2])
    is_ours = parts[0] == _PREFIX and (is_lock or is_arenas) and _NAME.fullmatch(parts[1])
    return parts[1] if is_ours else None


def reserve(fd: int, num_bytes: int, progress: Progress | None = None, pages: PagePolicy | None = None) -> int:
    """Allocates every page of the segment, slice by slice, so that no later access can fail for lack of room.

    Returns 0, or the errno of the kernel's refusal to give more huge pages.

    A GiB takes 0.2 s with huge pages, 0.7 s with small ones, and several seconds if the kernel must move other pages to
    make huge ones. Call it in a worker thread. Raises ShmReplayError if the file system is full.
    """
    done = refused = 0
    if pages is not None:
        try:
            os.ftruncate(fd, num_bytes)
        except OSError as error:
            raise _not_reserved(error) from error
        pages.spread(fd, num_bytes)
    wants_huge = pages is not None and pages.huge_pages != "never"
    while done < num_bytes:
        step = min(SLICE_BYTES, num_bytes - done)
        if wants_huge and refused == 0:  # do not ask again: asking takes long if memory is fragmented
            refused = _core.take_huge_pages(fd, done, step)
        _reserve_slice(fd, done, step)
        done += step
        if progress is not None:
            progress(done)
    return refused


def _reserve_slice(fd: int, offset: int, num_bytes: int) -> None:
    while True:
        try:
            os.posix_fallocate(fd, offset, num_bytes)
            return
        except InterruptedError:  # older kernels free the slice on a signal: begin it again
            continue
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.ENOMEM):
                raise ShmReplayError(
                    f"the file system of the segments was full after {show_bytes(offset)}, {show_bytes(num_bytes)} "
                    "more were needed: something else took the room; free some, or make it larger (--shm-size)"
                ) from error
            raise _not_reserved(error) from error


def _not_reserved(error: OSError) -> ShmReplayError:
    return ShmReplayError(f"a segment of shared memory cannot be reserved: {error}")


def set_access(fd: int, group_id: int | None) -> None:
    """Sets mode 0600, or 0660 and the group, whatever the umask is."""
    if group_id is not None:
        os.fchown(fd, -1, group_id)
    os.fchmod(fd, 0o600 if group_id is None else 0o660)


def check_received(fd: int, what: str, num_bytes: int, owner_ids: set[int]) -> None:
    """Checks a received descriptor before it is mapped.

    Raises SegmentFailed unless it is an ordinary file of one of the owners, closed to others, and of exactly
    `num_bytes` bytes: a shorter one would end this process with SIGBUS.
    """
    status = os.fstat(fd)
    problem = None
    if not stat.S_ISREG(status.st_mode):
        problem = "it is not a regular file"
    elif status.st_uid not in owner_ids:
        problem = f"it belongs to uid {status.st_uid}, expected {' or '.join(map(str, sorted(owner_ids)))}"
    elif status.st_mode & 0o007:
        problem = f"its mode is {stat.S_IMODE(status.st_mode):04o}: anybody can open it, expected 0600 or 0660"
    elif status.st_size != num_bytes:
        problem = f"it has {status.st_size} bytes, expected {num_bytes}: it was truncated or replaced"
    elif fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        problem = "it was not opened for reading and writing"
    if problem is not None:
        raise SegmentFailed(f"{what} is refused: {problem}")
