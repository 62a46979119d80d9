"""The checks of `shmreplay doctor`, one function each: memory, limits, systemd, containers, GPUs."""

from __future__ import annotations

import os
import platform
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shmreplay import _core
from shmreplay.base.host_memory import HUGE_PAGE_BYTES, mount_of, rooms, show_bytes
from shmreplay.base.processes import boot_id, own_namespace
from shmreplay.base.user_names import user_name
from shmreplay.clients.cli.machine.host_files import HostFiles
from shmreplay.clients.cuda.driver import Driver
from shmreplay.clients.cuda.errors import CudaUnavailable
from shmreplay.segments.page_policy import REMEDY, huge_option, why_no_huge_pages

LITTLE_BYTES = 2**30  # if there is less room than this, say so
FEW_FILES = 4096
FEW_MAPPINGS = 65530  # the kernel's default
FIRST_USER_ID = 1000  # users below this are system users, whose segments logind does not remove
OLDEST_KERNEL = (5, 3)  # pidfd_open
UNTOLD = "unknown: /proc/meminfo does not tell"


@dataclass(frozen=True)
class Finding:
    """What was checked, what was found, why it matters, and what to do about it if it is not enough."""

    about: str
    found: str
    why: str
    remedy: str | None = None


def look_at_lock() -> Finding:
    """Whether the kernel reports the death of a process that holds a lock."""
    why = "a lock whose holder dies unnoticed would block all processes for ever"
    try:
        _core.prove_robust_lock()
    except RuntimeError as error:
        return Finding("lock", str(error), why, "use another kernel: nothing works here")
    return Finding("lock", "the death of a process that holds it is noticed", why)


def look_at_kernel() -> Finding:
    """The version of Linux."""
    release = platform.release()
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    remedy = f"Linux {'.'.join(map(str, OLDEST_KERNEL))} or later is needed" if numbers < OLDEST_KERNEL else None
    why = "pidfds report deaths (Linux 5.3); huge pages need no mount option from Linux 6.1 on"
    return Finding("kernel", f"Linux {release}, {platform.machine()}", why, remedy)


def look_at_python() -> Finding:
    """The Python that runs this command."""
    found = f"{platform.python_implementation()} {platform.python_version()}, numpy {np.__version__}"
    return Finding(
        "Python",
        found,
        "actors, learners and the daemon may use different versions of Python, but only one of shmreplay",
    )


def look_at_segments(directory: str) -> Finding:
    """How much room there is for segments, by the tightest limit."""
    mount = mount_of(directory)
    where = directory if mount is None else f"{directory}, {mount.kind}"
    room = min(rooms(directory), key=lambda room: room.free_bytes)
    found = f"{where}: {show_bytes(room.free_bytes)} of {show_bytes(room.total_bytes)} free, by {room.name}"
    why = "a table takes all its memory when it is created, or is refused"
    return Finding("segments", found, why, room.remedy if room.free_bytes < LITTLE_BYTES else None)


def look_at_cgroup(directory: str) -> Finding:
    """The tightest memory limit of this process' cgroups."""
    why = "segments count for the cgroup of the process that touches a page first: the daemon"
    limits = [room for room in rooms(directory) if room.name.startswith("the cgroup ")]
    if not limits:
        return Finding("cgroup", "no memory limit", why)
    room = min(limits, key=lambda room: room.free_bytes)
    found = f"{show_bytes(room.free_bytes)} of {show_bytes(room.total_bytes)} free, by {room.name}"
    return Finding("cgroup", found, why, room.remedy if room.free_bytes < LITTLE_BYTES else None)


def look_at_overcommit(host: HostFiles) -> Finding:
    """Whether the kernel limits committed memory."""
    mode = host.number("/proc/sys/vm/overcommit_memory")
    why = "in mode 2 segments count for CommitLimit, even if memory is free"
    if mode != 2:
        return Finding("overcommit", f"mode {'unknown' if mode is None else mode}", why)
    limit, taken = host.memory("CommitLimit"), host.memory("Committed_AS")
    left = UNTOLD
    if limit is not None and taken is not None:
        left = f"{show_bytes(1024 * max(0, limit - taken))} of {show_bytes(1024 * limit)} left"
    found = f"mode 2: {left}"
    return Finding("overcommit", found, why, "raise vm.overcommit_ratio, or sysctl -w vm.overcommit_memory=0")


def look_at_huge_pages(directory: str) -> Finding:
    """Whether segments get huge pages of 2 MiB."""
    why = "with them a sample takes an eighth less time, and creating a table a third of the time"
    reason = why_no_huge_pages(directory)
    if reason is None:
        option = huge_option(directory)
        who = "the mount gives them" if option in ("within_size", "always") else "the daemon asks for them itself"
        found = f"of {show_bytes(HUGE_PAGE_BYTES)}, and they will be used: {who} (huge={option})"
        return Finding("huge pages", found, why)
    return Finding("huge pages", f"none: {reason}", why, f"Linux 6.1 gives them in every tmpfs; before it: {REMEDY}")


def look_at_hugetlb(host: HostFiles) -> Finding:
    """Pages that are reserved for hugetlb, which no segment can use."""
    why = "segments are on a tmpfs and use its huge pages; memory reserved for hugetlb is lost to them"
    total, free, size = (host.memory(name) for name in ("HugePages_Total", "HugePages_Free", "Hugepagesize"))
    if total == 0:
        return Finding("hugetlb", "nothing is set aside", why)
    if total is None or free is None or size is None:
        return Finding("hugetlb", UNTOLD, why)
    remedy = "free them, if no other program needs them: sysctl -w vm.nr_hugepages=0"
    return Finding(
        "hugetlb",
        f"{show_bytes(1024 * total * size)} set aside, {show_bytes(1024 * free * size)} of it free",
        why,
        remedy,
    )


def look_at_nodes() -> Finding:
    """The number of memory nodes that segments can be spread over."""
    why = "memory of another node is slower"
    count = _core.num_memory_nodes()
    if count < 2:
        return Finding("memory nodes", "one: nothing to spread segments over", why)
    found = f"{count}: shmreplayd --numa interleave, or sr.Server(numa='interleave'), uses all"
    return Finding("memory nodes", found, why)


def look_at_locked_memory() -> Finding:
    """How much memory this user may lock, so that it is not swapped out."""
    why = "the daemon locks the index of each arena in memory, so that no holder of its lock waits for a page"
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or os.geteuid() == 0:
        return Finding("locked memory", "no limit: the index of an arena is never swapped out", why)
    remedy = "raise LimitMEMLOCK or ulimit -l if there is swap and an index is larger"
    return Finding("locked memory", f"at most {show_bytes(limit)}", why, remedy)


def look_at_open_files() -> Finding:
    """How many open files a process may have."""
    why = "the daemon needs two for each client, and a client two for each arena"
    now, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return Finding("open files", "no limit", why)
    remedy = "raise LimitNOFILE of the service, or nofile in /etc/security/limits.conf" if limit < FEW_FILES else None
    raised = "" if now == limit else f"; a client {now}, unless ulimit -n raises it"
    return Finding("open files", f"at most {limit}{raised}", why, remedy)


def look_at_file_size() -> Finding:
    """How large a file of this process may become: segments are files."""
    why = "segments, checkpoints and exports are files; a larger one is refused (File too large)"
    return _look_at_size("file size", resource.RLIMIT_FSIZE, why, "raise ulimit -f, or LimitFSIZE of the service")


def look_at_address_space() -> Finding:
    """How much this process may map: clients and daemon map whole segments."""
    why = "each client and the daemon map all of an arena, whatever of it they use (Cannot allocate memory)"
    return _look_at_size("address space", resource.RLIMIT_AS, why, "raise ulimit -v, or LimitAS of the service")


def _look_at_size(about: str, kind: int, why: str, remedy: str) -> Finding:
    limit = resource.getrlimit(kind)[0]
    if limit == resource.RLIM_INFINITY:
        return Finding(about, "no limit", why)
    return Finding(about, f"at most {show_bytes(limit)}", why, remedy)


def look_at_proc() -> Finding:
    """Whether this process can read of /proc what tells this boot and its namespaces from others."""
    why = "a segment says which boot and which pid namespace it is of; without /proc nobody can tell"
    try:
        boot_id(), own_namespace("pid"), own_namespace("time")
    except OSError as error:
        return Finding("/proc", error.strerror or str(error), why, "nothing works here until it can be read")
    if os.readlink("/proc/self") != str(os.getpid()):
        remedy = "mount a /proc in this pid namespace (unshare --mount-proc)"
        return Finding("/proc", "it is that of another pid namespace", why, remedy)
    return Finding("/proc", "it tells the boot, the namespaces, and since when processes run", why)


def look_at_mappings(host: HostFiles) -> Finding:
    """How many mappings a process may have."""
    why = "an attached arena takes two, and each shard is an arena"
    limit = host.number("/proc/sys/vm/max_map_count")
    remedy = f"sysctl -w vm.max_map_count={FEW_MAPPINGS}" if limit is not None and limit < FEW_MAPPINGS else None
    return Finding("mappings", f"at most {limit}" if limit is not None else "limit unknown", why, remedy)


def look_at_logout(host: HostFiles, user_id: int) -> Finding:
    """Whether logind removes this user's segments at logout."""
    why = "logind removes a user's files in /dev/shm at the last logout, even if they are in use (RemoveIPC=)"
    if not host.exists("/run/systemd/seats"):
        return Finding("logout", "no logind runs here", why)
    if user_id < FIRST_USER_ID:
        return Finding("logout", f"uid {user_id} is a system user: its segments stay", why)
    user = user_name(user_id)
    if host.logind("RemoveIPC", "yes").lower() in ("no", "false", "0", "off"):
        return Finding("logout", "RemoveIPC=no: segments stay", why)
    if host.exists(f"/var/lib/systemd/linger/{user}"):
        return Finding("logout", f"lingering is enabled for {user}: segments stay", why)
    remedy = (
        f"loginctl enable-linger {user}, RemoveIPC=no in /etc/systemd/logind.conf, or a system service "
        "(shmreplay service install --system)"
    )
    return Finding("logout", f"a daemon of user {user} loses its segments at the last logout", why, remedy)


def look_at_container(host: HostFiles, environment: Mapping[str, str]) -> Finding:
    """Whether this is a container, and what daemon and clients must then share."""
    why = "the dead holder of a lock is found by its process id, so all processes must share a pid namespace"
    signs = {
        "Docker": host.exists("/.dockerenv"),
        "Podman": host.exists("/run/.containerenv"),
        "Kubernetes": bool(environment.get("KUBERNETES_SERVICE_HOST")),
        environment.get("container", ""): bool(environment.get("container")),
    }
    names = [name for name, is_there in signs.items() if is_there]
    if not names:
        return Finding("container", "none detected", why)
    remedy = (
        "run daemon and clients with --pid=host (--pid=container:NAME; shareProcessNamespace: true) and one /dev/shm "
        "(--ipc=host; an emptyDir with medium: Memory), or all of them in one container"
    )
    return Finding("container", ", ".join(names), why, remedy)


def look_at_gpus() -> Finding:
    """The GPUs that a learner would find. It makes no context, so it uses no memory of a GPU."""
    why = "batches go to a GPU without an extra copy: docs/gpu.md"
    try:
        driver = Driver.open()
    except CudaUnavailable as error:
        return Finding("GPUs", f"none: {error.reason}", why)
    names = ", ".join(driver.name(ordinal) for ordinal in range(driver.num_devices))
    return Finding("GPUs", f"{names}; CUDA {driver.version}", why)
