"""Items that a writer holds back go in, as far as they may, when nobody closes it; how many are lost is said."""

import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.writers.last_items import close_all
from shmreplay.clients.writers.writer import Writer
from tests.support.children import Child, Work
from tests.support.daemons import Run
from tests.support.tables import TableMaker, spans, step

LOST = "2 items that it held back are lost: the rate limiter does not admit them now; close the writer"

# Ends with a writer of three steps that nobody has closed, kept by a global or in a child's function.
END = """
import multiprocessing, sys
import shmreplay as sr

def write(address):
    global writer
    writer = sr.connect(address).table(sys.argv[2] if len(sys.argv) > 2 else "mine").writer(commit_every=8)
    for n in range(3):
        writer.append({"n": n})

if __name__ == "__main__":
    if sys.argv[3] == "here":
        write(sys.argv[1])
    elif sys.argv[3] == "own server":
        signature = {"n": sr.ArraySpec((), "int64")}
        server = sr.Server([sr.Table(sys.argv[2], signature, max_size=9, item=sr.Sequence(1))])
        write(server.address)
    else:
        child = multiprocessing.get_context(sys.argv[3]).Process(target=write, args=(sys.argv[1],))
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""
SIGNATURE = {"n": sr.ArraySpec((), "int64")}


def writer_of_three(table: TableHandle) -> Writer:
    """A writer that holds three items back."""
    writer = table.writer(commit_every=8)
    for n in range(3):
        writer.append(step(n))
    assert len(table) == 0
    return writer


def test_a_forgotten_writer_puts_them_in(make_table: TableMaker, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(item=sr.Sequence(1))
    writer = writer_of_three(table)
    del writer
    gc.collect()
    assert sorted(spans(table.sample(3, replacement=False))) == [[0], [1], [2]]
    assert caplog.text == ""


def test_a_closed_client_puts_them_in(
    server: sr.Server, make_table: TableMaker, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(item=sr.Sequence(1))
    client = server.client()
    writer = writer_of_three(client.table(table.name))
    client.close()
    assert len(table) == 3
    writer.close()
    assert caplog.text == ""


def test_how_many_are_lost_is_said_once(
    server: sr.Server, make_table: TableMaker, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_table.queue(1, item=sr.Sequence(1))
    client = server.client()
    writer = writer_of_three(client.table(queue.name))
    with caplog.at_level(logging.WARNING):
        client.close()
        writer.close()
        del writer
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        f"table {queue.name!r}: the writer ends, and {LOST}, or use it as a context manager"
    ]
    assert len(queue) == 1


@pytest.mark.parametrize("where", ["here", "fork"])
def test_a_process_that_ends_puts_them_in(
    run_script: Run, server: sr.Server, make_table: TableMaker, where: str
) -> None:
    table = make_table(signature=SIGNATURE, item=sr.Sequence(1))
    assert run_script(END, server.address, table.name, where).finish() == (0, "", "")
    assert len(table) == 3


def test_a_process_that_ends_says_what_it_cannot_put_in(
    run_script: Run, server: sr.Server, make_table: TableMaker
) -> None:
    queue = make_table.queue(1, signature=SIGNATURE, item=sr.Sequence(1))
    code, out, errors = run_script(END, server.address, queue.name, "here").finish()
    assert (code, out) == (0, "")
    assert LOST in errors
    assert len(queue) == 1


def test_they_go_in_before_a_server_of_the_same_process_ends(run_script: Run) -> None:
    assert run_script(END, "", "mine", "own server").finish() == (0, "", "")


def test_a_forked_child_leaves_them_to_its_parent(make_table: TableMaker, fork: Callable[[Work], Child]) -> None:
    table = make_table(item=sr.Sequence(1))
    writer = writer_of_three(table)

    def work(pipe: Any) -> int:
        nonlocal writer
        del writer
        gc.collect()
        close_all()  # as Python does when it exits
        return len(table)

    assert fork(work).result() == 0
    assert len(table) == 0
    writer.close()
    assert len(table) == 3
