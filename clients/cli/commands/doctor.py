"""`shmreplay doctor`: what this machine gives shared memory and learners, why it matters, and how to get more."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.machine import findings
from shmreplay.clients.cli.machine.finding import Finding
from shmreplay.clients.cli.machine.host import Host
from shmreplay.segments.segment import SegmentStore

INDENT = 16
VITAL = ("lock", "kernel")  # without these no daemon can run


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the subcommand."""
    parser = subparsers.add_parser("doctor", help="say what this machine gives: room, limits, huge pages, GPUs")
    parser.add_argument("--directory", metavar="DIR", help="where a daemon would keep its segments (default: /dev/shm)")
    parser.add_argument("--why", action="store_true", help="say of all why it matters, not only where something lacks")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the findings. 1 if a daemon could not run here."""
    directory, host = SegmentStore(args.directory).directory, Host()
    found = [
        findings.look_at_lock(),
        findings.look_at_kernel(),
        findings.look_at_python(),
        findings.look_at_segments(directory),
        findings.look_at_cgroup(directory),
        findings.look_at_overcommit(host),
        findings.look_at_huge_pages(directory),
        findings.look_at_hugetlb(host),
        findings.look_at_nodes(),
        findings.look_at_locked_memory(),
        findings.look_at_open_files(),
        findings.look_at_mappings(host),
        findings.look_at_logout(host, os.geteuid()),
        findings.look_at_container(host, os.environ),
        findings.look_at_gpus(),
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
