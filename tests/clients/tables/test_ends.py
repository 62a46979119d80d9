"""After the end: dropped tables, closed clients and servers, for later calls and for calls that wait."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.children import Fork
from tests.support.tables import COLUMNS, TableMaker, numbers, step, steps, values
from tests.support.waiting import eventually

KEYS = np.array([3], np.int64)


def calls(table: TableHandle) -> list[Callable[[], object]]:
    """Every call that works on the table."""
    return [
        lambda: table.insert(step(0)),
        lambda: table.insert_batch(steps([0])),
        lambda: table.sample(1),
        lambda: table.sample(1, count=False),
        lambda: table.get(KEYS),
        lambda: table.update_priorities(KEYS, [1.0]),
        lambda: table.delete(KEYS),
        table.reset,
        lambda: table.set_rate_limiter(sr.rate_limiters.MinSize(1)),
        table.pause,
        table.resume,
        table.info,
        lambda: len(table),
        table.can_insert,
        table.can_sample,
    ]


def test_every_call_on_a_dropped_table_raises_table_closed(make_table: TableMaker) -> None:
    table = make_table(item_steps=2)
    writer, late_writer = table.writer(), table.writer()
    writer.append(step(1))
    make_table.client.drop_table(table.name)
    append: Callable[[], object] = lambda: late_writer.append(step(1))  # noqa: E731  # typed, as mypy wants it
    for call in [*calls(table), append]:
        with pytest.raises(sr.TableClosed, match=f"table {table.name!r}.*: the table was dropped"):
            call()
    with pytest.raises(sr.TableClosed):
        writer.create_item(length=1)
    writer.close()
    late_writer.close()
    with pytest.raises(sr.TableNotFound):
        make_table.client.table(table.name)
    assert table.estimate().total_bytes > 0
    assert table.spec.max_size == 100


def blocked_calls(client: sr.Client, name: str) -> list[tuple[TableHandle, Callable[[], object]]]:
    """Calls that wait on three tables: an empty one, a full queue, and one without room."""
    client.create_tables(
        [
            sr.Table(f"{name}-empty", COLUMNS, 10, max_streams=4, max_sessions=8),
            sr.Table.queue(f"{name}-full", COLUMNS, 2, max_streams=4, max_sessions=8),
            sr.Table.queue(
                f"{name}-roomless", COLUMNS, 500, max_streams=4, max_sessions=8, capacity_steps=1, chunk_steps=1
            ),
        ]
    )
    empty, full, roomless = (client.table(f"{name}-{part}") for part in ("empty", "full", "roomless"))
    full.insert_batch(steps([0, 1]))
    with pytest.raises(sr.RateLimitTimeout, match="no room"):
        roomless.insert_batch(steps(range(500)), timeout_s=0)
    return [
        (empty, lambda: empty.sample(1)),
        (empty, lambda: empty.sample(1, timeout_s=1000)),
        (empty, lambda: empty.sample(1, count=False)),
        (full, lambda: full.insert(step(2))),
        (full, lambda: full.insert_batch(steps([2, 3]), timeout_s=1000)),
        (roomless, lambda: roomless.insert(step(2))),
    ]


def start_all(
    works: list[tuple[TableHandle, Callable[[], object]]],
) -> tuple[list[threading.Thread], list[BaseException]]:
    """Runs them in threads and waits until all but the last one sleep; that one waits without being counted."""
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for _, call in works]
    for thread in threads:
        thread.start()
    empty, full = works[0][0], works[3][0]
    eventually(lambda: empty.info().blocked_samples_total == 3 and full.info().blocked_inserts == 2)
    return threads, errors


def test_a_drop_ends_the_calls_that_wait(server: sr.Server) -> None:
    with server.client() as client, server.client() as other:
        works = blocked_calls(client, "dropped")
        threads, errors = start_all(works)
        for part in ("empty", "full", "roomless"):
            other.drop_table(f"dropped-{part}")
        for thread in threads:
            thread.join()
        assert len(errors) == len(works)
        for error in errors:
            assert isinstance(error, sr.TableClosed)
            assert "the table was dropped" in str(error)


def test_a_drop_in_another_process_ends_the_calls_that_wait(make_table: TableMaker, fork: Fork) -> None:
    tables = [make_table(10), make_table.queue(1)]
    tables[1].insert(step(0))

    def work(pipe: Any, table: TableHandle, call: Callable[[], object]) -> str:
        with pytest.raises(sr.TableClosed) as raised:
            call()
        return str(raised.value)

    children = [
        fork(lambda pipe: work(pipe, tables[0], lambda: tables[0].sample(1))),
        fork(lambda pipe: work(pipe, tables[1], lambda: tables[1].insert(step(1)))),
    ]
    eventually(lambda: tables[0].info().blocked_samples == 1 and tables[1].info().blocked_inserts == 1)
    for table in tables:
        make_table.client.drop_table(table.name)
    assert [child.result() for child in children] == [
        f"table {tables[0].name!r}: sample: the table was dropped, or its server was closed",
        f"table {tables[1].name!r}: insert: the table was dropped, or its server was closed",
    ]


def test_items_drawn_before_a_drop_are_in_the_error(make_table: TableMaker) -> None:
    queue = make_table.queue(10)
    queue.insert_batch(steps(range(3)))
    errors: list[sr.TableClosed] = []

    def sample() -> None:
        with pytest.raises(sr.TableClosed) as raised:
            queue.sample(8)
        errors.append(raised.value)

    thread = threading.Thread(target=sample)
    thread.start()
    eventually(lambda: queue.info().blocked_samples == 1)
    make_table.client.drop_table(queue.name)
    thread.join()
    assert numbers(errors[0].batch).tolist() == [0, 1, 2]  # type: ignore[attr-defined]


def test_every_call_after_close_says_that_the_client_is_closed(server: sr.Server, make_table: TableMaker) -> None:
    name = make_table(10, item_steps=2).name
    client = server.client()
    table = client.table(name)
    writer = table.writer()
    writer.append(step(1))
    client.close()
    expected = f"table {name!r}: its client is closed; connect anew"
    ways: list[Callable[[], object]] = [table.keys, table.writer, lambda: writer.append(step(2)), writer.end_episode]
    for call in [*calls(table), *ways]:
        with pytest.raises(sr.ShmReplayError) as raised:
            call()
        assert str(raised.value) == expected
        assert type(raised.value) is sr.ShmReplayError
    writer.close()
    assert len(make_table.client.table(name)) == 0


def test_closing_a_client_ends_its_calls_that_wait(server: sr.Server) -> None:
    """A thread that samples ahead must not hang for ever on a client that the program has closed."""
    client = server.client()
    works = blocked_calls(client, "closed")
    threads, errors = start_all(works)
    client.close()
    for thread in threads:
        thread.join()
    assert [str(error).partition(": ")[2] for error in errors] == ["its client is closed; connect anew"] * len(works)
    with server.client() as other:
        for part in ("empty", "full", "roomless"):
            assert len(other.table(f"closed-{part}")._arena.sessions()) == 1
            assert other.table(f"closed-{part}")._arena.check() == []
            other.drop_table(f"closed-{part}")


def test_one_client_of_a_process_is_closed_and_the_other_goes_on(server: sr.Server, make_table: TableMaker) -> None:
    table = make_table(10)
    with server.client() as other:
        other.table(table.name).insert(step(1))
    table.insert(step(2))
    assert values(table) == [1, 2]
    assert len(table._arena.sessions()) == 1


def test_the_end_of_the_server_ends_the_calls_that_wait() -> None:
    with sr.Server() as server:
        client = server.client()
        works = blocked_calls(client, "gone")
        threads, errors = start_all(works)
    for thread in threads:
        thread.join()
    assert [type(error) for error in errors] == [sr.TableClosed] * len(works)
    for table, _ in works:
        with pytest.raises(sr.TableClosed):
            table.insert(step(0))
    client.close()
    with pytest.raises(sr.ShmReplayError, match="the server is closed"):
        server.client()


def test_a_table_is_made_anew_under_the_same_name(make_table: TableMaker) -> None:
    old = make_table(10)
    old.insert(step(1))
    make_table.client.drop_table(old.name)
    make_table.client.create_tables([sr.Table(old.name, COLUMNS, 20, max_streams=4, max_sessions=8)])
    new = make_table.client.table(old.name)
    new.insert(step(2))
    assert values(new) == [2]
    with pytest.raises(sr.TableClosed):
        old.insert(step(3))
    with pytest.raises(sr.TableNotFound, match="no table 'nowhere'"):
        make_table.client.table("nowhere")
