"""`shmreplay doctor`: checks what this machine offers to shared memory and learners, and says how to get more."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.machine import machine_checks as checks
from shmreplay.clients.cli.machine.host_files import HostFiles
from shmreplay.clients.cli.machine.machine_checks import Finding
from shmreplay.segments.segment import SegmentStore

INDENT = 16
VITAL = ("lock", "kernel", "/proc")  # without these no daemon can run


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("doctor", help="check this machine: memory, limits, huge pages, GPUs")
    parser.add_argument("--directory", metavar="DIR", help="where a daemon would keep its segments (default: /dev/shm)")
    parser.add_argument(
        "--why", action="store_true", help="say for every line why it matters, not only where something is missing"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the findings. Returns 1 if a daemon cannot run here."""
    directory, host = SegmentStore(args.directory).directory, HostFiles()
    found = [
        checks.look_at_lock(),
        checks.look_at_kernel(),
        checks.look_at_proc(),
        checks.look_at_python(),
        checks.look_at_segments(directory),
        checks.look_at_cgroup(directory),
        checks.look_at_overcommit(host),
        checks.look_at_huge_pages(directory),
        checks.look_at_hugetlb(host),
        checks.look_at_nodes(),
        checks.look_at_locked_memory(),
        checks.look_at_open_files(),
        checks.look_at_file_size(),
        checks.look_at_address_space(),
        checks.look_at_mappings(host),
        checks.look_at_logout(host, os.geteuid()),
        checks.look_at_container(host, os.environ),
        checks.look_at_gpus(),
    ]
    if args.json:
        print(to_json([asdict(finding) for finding in found]))
    else:
        for finding in found:
            _print(finding, args.why)
    return 1 if any(finding.about in VITAL and finding.remedy for finding in found) else 0


def _print(finding: Finding, always_why: bool) -> None:
    print(f"{finding.about + ':':<{INDENT}}{finding.found}")
    if always_why or finding.remedy is not None:
        print(f"{'':<{INDENT}}{finding.why}")
    if finding.remedy is not None:
        print(f"{'':<{INDENT}}-> {finding.remedy}")
