"""A writer that ends without an item of its steps says so, once, with what to do."""

import logging
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import TableMaker

SIGNATURE = {"x": sr.ArraySpec((), "int64")}
STEP, STEPS = {"x": 1}, {"x": np.ones(2, np.int64)}
WAYS = "item=sr.NStep(3) or another window, give the writer patterns=[...], or make items by hand"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was logged since the beginning of the test."""
    with caplog.at_level(logging.WARNING, "shmreplay"):
        yield lambda: [record.getMessage() for record in caplog.records]


def append(table: TableHandle) -> None:
    writer = table.writer()
    writer.append(STEP)
    writer.end_episode()
    writer.close()
    writer.close()


def append_to_many(table: TableHandle) -> None:
    with table.vector_writer(2) as writer:
        writer.append(STEPS, mask=np.array([False, True]))


def fail_after_a_step(writer: sr.Writer) -> None:
    writer.append(STEP)
    writer.append({})


@pytest.mark.parametrize(("write", "call"), [(append, "create_item"), (append_to_many, "create_items")])
def test_steps_that_no_item_was_made_of_are_warned_of(
    make_table: TableMaker, said: Callable[[], list[str]], write: Callable[[TableHandle], None], call: str
) -> None:
    table = make_table(10, signature=SIGNATURE)
    write(table)
    [text] = said()
    assert text.startswith(f"table {table.name!r}: the writer ends, has appended steps, and made no item of them")
    assert WAYS in text
    assert text.endswith(f"{call}(length=...)")


def test_others_are_not(make_table: TableMaker, said: Callable[[], list[str]]) -> None:
    declared, plain = make_table(10, signature=SIGNATURE, item=sr.Sequence(5)), make_table(10, signature=SIGNATURE)
    append(declared)  # too short an episode for some windows, but its items are declared
    with plain.writer():
        pass
    with plain.writer(patterns=[sr.Sequence(2)]) as writer:
        writer.append(STEP)
    with plain.writer() as writer:
        writer.append(STEP)
        writer.create_item(length=1)
    with plain.vector_writer(2) as many:
        many.append(STEPS)
        many.create_items(length=1)
    with pytest.raises(sr.SignatureMismatch), plain.writer() as writer:
        fail_after_a_step(writer)
    assert said() == []
