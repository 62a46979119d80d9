"""`writer.history`: indexed exactly as a Python list, and what a selection of it may be used for."""

import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.writers.writer import Writer
from tests.support.tables import TableMaker

SIGNATURE = {"a": sr.ArraySpec((), "int64"), "b": {"c": sr.ArraySpec((2,), "float32")}}
BOUNDS = (None, -9, -4, -2, -1, 0, 1, 2, 3, 5, 9)


def put(writer: Writer, k: int) -> None:
    writer.append({"a": k, "b": {"c": np.array([k, -k], np.float32)}})


@pytest.fixture(params=[1, 3, 64])
def writer(request: Any, make_table: TableMaker) -> Iterator[Writer]:
    table = make_table(1000, signature=SIGNATURE, chunk_steps=request.param)
    with table.writer(history=10) as writer:
        yield writer


@pytest.mark.parametrize("num_steps", [0, 1, 3, 8, 14])
def test_it_is_indexed_as_a_list(writer: Writer, num_steps: int) -> None:
    for k in range(num_steps):
        put(writer, k)
    held = list(range(num_steps))[-10:]
    history = writer.history["a"]
    assert len(history) == len(held)
    for i in range(-12, 13):
        try:
            expected = held[i]
        except IndexError:
            with pytest.raises(IndexError, match=rf"history of column 'a': index {i} is out of range; {len(held)} ste"):
                history[i]
            continue
        assert history[i].numpy() == expected
        assert history[np.int32(i)].numpy() == expected
    for start, stop, step in itertools.product(BOUNDS, BOUNDS, (None, 1, 2, 3, -1, -2)):
        assert history[start:stop:step].numpy().tolist() == held[start:stop:step], (start, stop, step)
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        history[::0]


def test_the_slices_that_used_to_be_wrong_elsewhere_are_right(writer: Writer) -> None:
    for k in range(3):
        put(writer, k)
    history = writer.history["a"]
    assert history[1:3].numpy().tolist() == [1, 2]
    assert history[-2:3].numpy().tolist() == [1, 2]
    assert history[0:3].numpy().tolist() == [0, 1, 2]
    with pytest.raises(
        IndexError, match=r"table 't\d+': history of column 'a': index 3 is out of range; 3 steps are held"
    ):
        history[3]


def test_lists_permute_and_repeat(writer: Writer) -> None:
    for k in range(8):
        put(writer, k)
    history = writer.history["a"]
    for places in ([-1, -2, -3], [-3, -3, -3], [0, 7], [5], (2, 0, 2), np.array([1, 4]), []):
        assert history[places].numpy().tolist() == [range(8)[i] for i in places]
    with pytest.raises(IndexError, match="index 8 is out of range"):
        history[[0, 8]]


@pytest.mark.parametrize("index", [1.5, True, None, "a", {1: 2}, [1.5], [True], np.array([True, False]), [[0]], [None]])
def test_other_indices_are_refused(writer: Writer, index: Any) -> None:
    for k in range(3):
        put(writer, k)
    with pytest.raises(TypeError, match=r"history of column 'a': index .*; expected an int, a slice or a list of ints"):
        writer.history["a"][index]


def test_a_selection_is_an_array_of_the_column_s_shape_and_dtype(writer: Writer) -> None:
    for k in range(4):
        put(writer, k)
    part = writer.history["b"]["c"]
    assert (part[-1].shape, part[-3:].shape, part[[]].shape) == ((2,), (3, 2), (0, 2))
    assert part[-3:].dtype == np.float32
    np.testing.assert_array_equal(np.asarray(part[-2:]), [[2, -2], [3, -3]])
    assert np.asarray(part[-1], np.float64).dtype == np.float64
    assert part[[]].numpy().shape == (0, 2)
    assert len(part[-3:]) == 3
    with pytest.raises(TypeError, match="a selection of one step by an int has no step axis and no len"):
        len(part[-1])
    with pytest.raises(ValueError, match="its steps are not one array"):
        part[-2:].__array__(copy=False)
    assert repr(part[-2:]) == "<steps [2, 3] of column 'b/c'>"
    assert repr(part) == "<history of 4 steps of column 'b/c'>"


def test_a_selection_is_a_copy(writer: Writer) -> None:
    put(writer, 1)
    values = writer.history["a"][-1:].numpy()
    values[:] = 9
    assert writer.history["a"][-1].numpy() == 1


def test_the_open_row_is_the_newest_step(writer: Writer) -> None:
    put(writer, 0)
    writer.append({"a": 7}, partial=True)
    assert writer.history["a"][-1].numpy() == 7
    assert writer.history["a"][:].numpy().tolist() == [0, 7]
    with pytest.raises(sr.SignatureMismatch, match=r"step 1 lacks column 'b/c'; it was appended without it"):
        writer.history["b"]["c"][-1].numpy()
    writer.append({"b": {"c": np.zeros(2, np.float32)}})
    assert writer.history["b"]["c"][-1].numpy().tolist() == [0, 0]


def test_a_selection_names_steps_and_expires_with_them(writer: Writer) -> None:
    put(writer, 0)
    first = writer.history["a"][0]
    for k in range(1, 10):
        put(writer, k)
        assert first.numpy() == 0
    put(writer, 10)
    text = (
        r"step 0 of column 'a' has left the writer's history, which begins at step 1; select anew, or make the writer"
    )
    with pytest.raises(sr.ShmReplayError, match=text):
        first.numpy()
    with pytest.raises(sr.ShmReplayError, match=text):
        writer.create_item(trajectory={"x": writer.history["a"][-1], "y": first})


def test_the_end_of_an_episode_clears_it_unless_told_otherwise(writer: Writer) -> None:
    put(writer, 0)
    kept = writer.history["a"][-1]
    writer.end_episode(clear_history=False)
    put(writer, 1)
    assert writer.history["a"][:].numpy().tolist() == [0, 1]
    writer.end_episode()
    assert len(writer.history["a"]) == 0
    with pytest.raises(sr.ShmReplayError, match="step 0 of column 'a' has left the writer's history"):
        kept.numpy()


def test_nothing_is_read_after_the_writer_was_closed(writer: Writer) -> None:
    put(writer, 0)
    writer.append({"a": 7}, partial=True)
    selection = writer.history["a"][:]
    writer.close()
    for use in (selection.numpy, lambda: writer.history):
        with pytest.raises(sr.ShmReplayError, match="the writer is closed; make a new one"):
            use()


def test_nothing_is_read_in_a_forked_child(writer: Writer) -> None:
    put(writer, 0)
    selection = writer.history["a"][-1]
    if (pid := os.fork()) == 0:
        try:
            selection.numpy()
        except sr.ShmReplayError as error:
            os._exit(7 if "belongs to the parent process" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
