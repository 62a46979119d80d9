"""A client closed by one thread while others of the process are at work in its tables."""

import threading
from collections.abc import Callable

import pytest

import shmreplay as sr
from tests.support.tables import TableMaker, check, step, steps, values
from tests.support.waiting import WAIT_S, eventually


def test_closing_ends_blocked_calls_of_other_threads(make_table: TableMaker, server: sr.Server) -> None:
    name = make_table.queue(4).name
    client = server.client()
    table = client.table(name)
    ends: list[BaseException] = []

    def wait_for_an_item() -> None:
        try:
            table.sample(1)
        except sr.ShmReplayError as error:
            ends.append(error)

    threads = [threading.Thread(target=wait_for_an_item) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: table.info().blocked_samples == 4)
    client.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert [type(error) for error in ends] == [sr.ShmReplayError] * 4
    assert "its client is closed" in str(ends[0])


def test_rows_of_calls_under_way_are_whole_when_the_client_closes(make_table: TableMaker, server: sr.Server) -> None:
    table = make_table(64, chunk_steps=4)
    for _ in range(20):
        client = server.client()
        handle = client.table(table.name)
        started = threading.Event()

        def insert_for_ever(handle: sr.TableHandle = handle, started: threading.Event = started) -> None:
            while True:
                handle.insert_batch(steps(range(50)))
                started.set()

        def insert_until_it_ends(insert: Callable[[], None] = insert_for_ever) -> None:
            with pytest.raises(sr.ShmReplayError):
                insert()

        thread = threading.Thread(target=insert_until_it_ends)
        thread.start()
        assert started.wait(WAIT_S)
        client.close()
        table.insert(step(7))  # takes the chunks that come free
        thread.join(WAIT_S)
        assert not thread.is_alive()
        values(table)  # looks at every byte
        assert check(table) == []
