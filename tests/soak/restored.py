"""Checkpoints of a storm, restored into a second server and compared with what must be in them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.daemon.checkpoints.saved import facts
from tests.soak.learners import check_rows, items_of
from tests.soak.ledger import Kept, Queued
from tests.soak.tables import KEPT, NAMES, SPANS, tables
from tests.support.tables import check, numbers


@contextlib.contextmanager
def restored(path: str) -> Iterator[dict[str, TableHandle]]:
    """The tables of a checkpoint, by name; their arenas are whole."""
    with sr.Server(tables(), restore=path) as server, server.client() as client:
        handles = {name: client.table(name) for name in NAMES}
        for name, table in handles.items():
            assert (faults := check(table)) == [], f"the restored arena of {name}: {faults}"
        yield handles


def compare_at_rest(path: str, client: sr.Client) -> None:
    """Compares a checkpoint of tables at rest: every byte, counter and order must be the same."""
    with restored(path) as found:
        for name in NAMES:
            before, after = facts(client.table(name)), facts(found[name])
            for what in before:
                assert after[what] == before[what], f"table {name}, restored: {what}"


@dataclass(frozen=True)
class Moment:
    """The results that the processes of a storm had got by a moment."""

    kept: dict[str, list[Kept]]  # by table
    queued: Queued


def compare_at_work(path: str, before: Moment, after: Moment) -> int:
    """A checkpoint taken between two moments: no item lost that was there at both, none that was gone before.

    Returns how many items it has.
    """
    with restored(path) as found:
        for name in KEPT:
            _compare_kept(found[name], name, before.kept[name], after.kept[name])
        for name in (*SPANS, "unrolls"):
            if len(table := found[name]):
                check_rows(name, table.get(table.keys()))
        num_items = sum(map(len, found.values()))
        _compare_queue(found["queue"], before.queued, after.queued)
    return num_items


def _compare_kept(table: TableHandle, name: str, before: list[Kept], after: list[Kept]) -> None:
    batch = table.get(table.keys())
    ns, states = items_of(name, batch)
    there = dict(zip(ns, zip(batch.keys.tolist(), states, strict=True), strict=True))
    for earlier, later in zip(before, after, strict=True):
        gone = earlier.deleted.intersection(there)
        assert not gone, f"table {name}, restored: these were deleted before: {sorted(gone)[:10]}"
        certain = later.certain
        for number in earlier.certain.keys() & certain.keys():
            assert number in there, f"table {name}, restored: {number} is lost"
            assert there[number][0] == certain[number]
            assert there[number][1] in later.possible(number, since=earlier)


def _compare_queue(queue: TableHandle, before: Queued, after: Queued) -> None:
    there: set[int] = set()
    while len(queue):
        there.update(numbers(queue.sample(min(len(queue), 16), timeout_s=0)).tolist())
    assert not there & before.consumed, f"came out before and are there again: {sorted(there & before.consumed)[:10]}"
    assert there <= after.begun, f"never went in: {sorted(there - after.begun)[:10]}"
    lost = before.inserted - after.consumed - there
    assert len(lost) <= after.may_be_lost, f"{len(lost)} items of the queue are lost: {sorted(lost)[:10]}"
