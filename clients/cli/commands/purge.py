"""`shmreplay purge`: removes what dead instances left in shared memory."""

from __future__ import annotations

import argparse
import contextlib
import os

from shmreplay.base.host_memory import show_bytes
from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.options import add_yes_option, confirm
from shmreplay.clients.cli.terminal.printing import counted
from shmreplay.errors import ShmReplayError
from shmreplay.protocol import is_embedded_socket
from shmreplay.segments.dead_instances import Instance, find_instances, remove_instance
from shmreplay.segments.segment import SegmentStore, check_name


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "purge",
        help="remove what dead instances left in shared memory",
        description="Lists the instances that have files in shared memory, and removes those that are dead: no daemon "
        "of theirs runs, and no process uses their memory. Their items are lost: without a purge, the next shmreplayd "
        "of an instance takes its tables over.",
    )
    add = parser.add_argument
    add("--instance", metavar="NAME", help="only this one (default: all that are dead)")
    add("--directory", metavar="DIR", help="where the segments are (default: /dev/shm)")
    add_yes_option(parser)
    add("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Lists what there is, asks, and removes what is dead. Returns 1 if an instance could not be removed.

    Raises ShmReplayError if the instance that --instance names is not there, or not dead.
    """
    store = SegmentStore(args.directory)
    found = _chosen(find_instances(store), args.instance, store.directory)
    dead = [instance for instance in found if not instance.kept_because]
    if not args.json:
        for instance in found:
            print(_describe(instance))
    failures = {}
    if dead:
        total = show_bytes(sum(instance.num_bytes for instance in dead))
        confirm(f"Remove {counted(len(dead), 'dead instance')} with {total}? Their items are lost.", args.yes)
        failures = {instance.name: text for instance in dead if (text := _remove(store, instance))}
    removed = [instance for instance in dead if instance.name not in failures]
    if args.json:
        kept = {instance.name: instance.kept_because for instance in found if instance.kept_because}
        print(to_json({"removed": [instance.name for instance in removed], "kept": kept | failures}))
    else:
        for text in failures.values():
            print(text)
        num_bytes = sum(instance.num_bytes for instance in removed)
        print(f"removed {counted(len(removed), 'instance')}, {show_bytes(num_bytes)}, from {store.directory}")
    return 1 if failures else 0


def _chosen(found: list[Instance], name: str | None, directory: str) -> list[Instance]:
    if name is None:
        return found
    check_name("instance", name)
    chosen = [instance for instance in found if instance.name == name]
    if not chosen:
        names = ", ".join(instance.name for instance in found) or "none"
        raise ShmReplayError(f"there is no instance {name!r} in {directory}; there are: {names}")
    if chosen[0].kept_because:
        raise ShmReplayError(f"instance {name!r} is not dead: {chosen[0].kept_because}")
    return chosen


def _describe(instance: Instance) -> str:
    what = f"{instance.name}: {counted(len(instance.arenas), 'arena')}, {show_bytes(instance.num_bytes)}"
    return f"{what}, stays: {instance.kept_because}" if instance.kept_because else f"{what}, dead"


def _remove(store: SegmentStore, instance: Instance) -> str:
    """Removes an instance, and the socket of an embedded daemon. Returns why it could not, or an empty text."""
    try:
        remove_instance(store, instance.name)
    except ShmReplayError as error:
        return str(error)
    if is_embedded_socket(instance.socket):
        with contextlib.suppress(OSError):  # another user's, or gone: nothing hangs on it
            os.unlink(instance.socket)
            os.rmdir(os.path.dirname(instance.socket))
    return ""
