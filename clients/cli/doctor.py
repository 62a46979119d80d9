"""`shmreplay doctor`: what this machine gives shared memory and learners, and how to get more."""

from __future__ import annotations

import argparse
import json
import os
import resource
from dataclasses import asdict, dataclass

from shmreplay import _core
from shmreplay.clients.cuda.driver import Driver
from shmreplay.clients.cuda.errors import CudaUnavailable
from shmreplay.host_memory import mount_of, rooms, show_bytes
from shmreplay.page_policy import HUGE_PAGE_BYTES, REMEDY, huge_option, why_no_huge_pages
from shmreplay.segments import SegmentStore


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what there is, and what to do about it, if that is less than there could be."""

    about: str
    found: str
    remedy: str | None = None


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    parser = subparsers.add_parser("doctor", help="say what this machine gives: room, huge pages, nodes, GPUs")
    parser.add_argument("--directory", metavar="DIR", help="where a daemon would keep its segments (default: /dev/shm)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the findings. 1 if a daemon could not run here."""
    directory = SegmentStore(args.directory).directory
    lock = _lock()
    findings = [lock, _room(directory), _huge_pages(directory), _nodes(), _locked_memory(), _gpus()]
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{finding.about + ':':<16}{finding.found}")
            if finding.remedy is not None:
                print(f"{'':<16}{finding.remedy}")
    return 0 if lock.remedy is None else 1


def _lock() -> Finding:
    try:
        _core.prove_robust_lock()
    except RuntimeError as error:
        return Finding("lock", str(error), "run it on another kernel: nothing works here")
    return Finding("lock", "the death of a process that holds it is noticed")


def _room(directory: str) -> Finding:
    mount = mount_of(directory)
    where = directory if mount is None else f"{directory}, {mount.kind}"
    room = min(rooms(directory), key=lambda room: room.free_bytes)
    return Finding("segments", f"{where}: {show_bytes(room.free_bytes)} free, by {room.name}")


def _huge_pages(directory: str) -> Finding:
    size = show_bytes(HUGE_PAGE_BYTES)
    reason = why_no_huge_pages(directory)
    if reason is None:
        return Finding("huge pages", f"of {size}; the mount has huge={huge_option(directory)}")
    return Finding("huge pages", f"none: {reason}", f"Linux 6.1 gives them in every tmpfs; before it: {REMEDY}")


def _nodes() -> Finding:
    count = _core.num_memory_nodes()
    if count < 2:
        return Finding("memory nodes", "one: nothing to spread segments over")
    return Finding("memory nodes", f"{count}: shmreplayd --numa interleave, or sr.Server(numa='interleave'), uses all")


def _locked_memory() -> Finding:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or os.geteuid() == 0:
        return Finding("locked memory", "no limit: the index of an arena is never swapped out")
    remedy = "raise LimitMEMLOCK or ulimit -l where there is swap and an index is larger"
    return Finding("locked memory", f"at most {show_bytes(limit)}", remedy)


def _gpus() -> Finding:
    """What a learner would find. It makes no context, so it takes nothing of a GPU."""
    try:
        driver = Driver.open()
    except CudaUnavailable as error:
        return Finding("GPUs", f"none: {error.reason}")
    names = ", ".join(driver.name(ordinal) for ordinal in range(driver.num_devices))
    return Finding("GPUs", f"{names}; CUDA {driver.version}")
