"""PagePolicy: the page size of segments, and the memory nodes they are on.

From Linux 6.1 on, huge pages (2 MiB) need neither a mount option nor a privilege: the daemon asks for them while it
reserves a segment. On older kernels, only a tmpfs mounted with `huge=within_size` or `huge=always` has them. The end of
a segment that does not fill a huge page is in small pages.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from shmreplay import _core
from shmreplay.base.host_memory import HUGE_PAGE_BYTES, mount_of, show_bytes, whole_huge_bytes
from shmreplay.errors import ShmReplayError

HUGE_PAGES = ("auto", "never", "require")
NUMA = ("default", "interleave")
REMEDY = "mount -t tmpfs -o huge=within_size,size=16g tmpfs DIR, and give the daemon --directory DIR"
_SHMEM_ENABLED = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"


@dataclass(frozen=True)
class PagePolicy:
    """How segments get their pages.

    Attributes:
        huge_pages: "auto" uses huge pages if available; "require" makes no segment without them; "never" asks for none,
            and takes what the mount gives.
        numa: "interleave" spreads the pages over the machine's memory nodes; "default" leaves the choice to the kernel:
            the daemon's node while it has free memory.

    Raises:
        ValueError: one of them is something else.
    """

    huge_pages: str = "auto"
    numa: str = "default"

    def __post_init__(self) -> None:
        for name, known in (("huge_pages", HUGE_PAGES), ("numa", NUMA)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} is {value!r}; expected {', '.join(map(repr, known))}")

    def check(self, directory: str) -> str | None:
        """Returns a note if the policy has no effect on this machine, otherwise None.

        Raises ShmReplayError if segments in the directory cannot follow it.
        """
        if self.huge_pages == "require" and (reason := why_no_huge_pages(directory)) is not None:
            raise ShmReplayError(f"huge_pages is 'require', but there are none in {directory}: {reason}; {REMEDY}")
        if self.numa == "default":
            return None
        if _core.num_memory_nodes() < 2:
            return "numa is 'interleave', but this machine has one memory node: there is nothing to spread over"
        with _scratch_file(directory) as fd:
            _interleave(fd, HUGE_PAGE_BYTES)
        return None

    def spread(self, fd: int, num_bytes: int) -> None:
        """Sets the memory nodes of a segment that has no pages yet. Raises ShmReplayError if the kernel refuses."""
        if self.numa == "interleave" and _core.num_memory_nodes() > 1:
            _interleave(fd, num_bytes)

    def check_taken(self, fd: int, what: str) -> None:
        """Raises ShmReplayError if a segment has fewer huge pages than are required."""
        if self.huge_pages != "require":
            return
        num_bytes = os.fstat(fd).st_size
        wanted, found = whole_huge_bytes(num_bytes), _core.huge_bytes_of(fd, num_bytes)
        if found < wanted:
            raise ShmReplayError(
                f"{what} has {show_bytes(found)} in huge pages instead of {show_bytes(wanted)}, and huge_pages is "
                f"'require': the kernel found no more memory in pieces of {show_bytes(HUGE_PAGE_BYTES)}; free some, or "
                "use 'auto'"
            )


def why_no_huge_pages(directory: str) -> str | None:
    """Tries to get a huge page in the directory. Returns None if it works, otherwise the reason."""
    with _scratch_file(directory) as fd:
        error = _core.take_huge_pages(fd, 0, HUGE_PAGE_BYTES)
        try:
            os.posix_fallocate(fd, 0, HUGE_PAGE_BYTES)
        except OSError as full:
            return f"it has no room for one ({full.strerror})"
        if _core.huge_bytes_of(fd, HUGE_PAGE_BYTES) == HUGE_PAGE_BYTES:
            return None
    if _shmem_enabled() == "deny":
        return f"{_SHMEM_ENABLED} says deny"
    said = f"the kernel says {os.strerror(error)!r}" if error else "the kernel gave small ones"
    return f"{said} (Linux {os.uname().release}, mount option huge={huge_option(directory)})"


def huge_option(directory: str) -> str:
    """The mount option `huge=` of the directory: never, advise, within_size or always."""
    mount = mount_of(directory)
    options = mount.options.split(",") if mount is not None else []
    return next((option.removeprefix("huge=") for option in options if option.startswith("huge=")), "never")


def _interleave(fd: int, num_bytes: int) -> None:
    error = _core.interleave(fd, num_bytes)
    if error:
        raise ShmReplayError(
            f"numa is 'interleave', but the kernel refuses mbind: {os.strerror(error)}; in a container it needs "
            "--cap-add SYS_NICE or a seccomp profile that allows it. Or use 'default'"
        )


@contextlib.contextmanager
def _scratch_file(directory: str) -> Iterator[int]:
    """An unnamed file of the size of a huge page."""
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ShmReplayError(f"{directory} takes no file of a segment: {error}") from error
    try:
        os.ftruncate(fd, HUGE_PAGE_BYTES)
        yield fd
    finally:
        os.close(fd)


def _shmem_enabled() -> str:
    """The machine's setting for shared memory without a mount option; `deny` overrides mount options, too."""
    try:
        with open(_SHMEM_ENABLED, encoding="ascii") as file:
            return file.read().partition("[")[2].partition("]")[0]
    except OSError:
        return ""
