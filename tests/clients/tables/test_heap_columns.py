"""Columns in the heap, from a step to a batch: by insert, by writers, by windows and by hand."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shmreplay as sr
from shmreplay.estimates import mean_stored_bytes
from tests.support.heap_columns import (
    COLUMNS,
    check_rows,
    free_blocks,
    image_of,
    note_of,
    points_of,
    state_of,
    step,
    steps,
)
from tests.support.tables import TableMaker, check

CHUNK_STEPS = [1, 3, 64]


@pytest.mark.parametrize("chunk_steps", CHUNK_STEPS)
def test_single_steps_come_back_bit_for_bit(make_table: TableMaker, chunk_steps: int) -> None:
    table = make_table(1000, signature=COLUMNS, chunk_steps=chunk_steps)
    for n in range(40):
        table.insert(step(n))
    table.insert_batch(steps(list(range(40, 130))))
    check_rows(table.get(table.keys()), list(range(130)))
    batch = table.sample(50)
    check_rows(batch, batch.data["n"].tolist())


def test_separate_steps_of_which_one_needs_a_cast_come_back_as_others_do(make_table: TableMaker) -> None:
    frame, reward = sr.ArraySpec((4, 5), "uint8", compression="lz4"), sr.ArraySpec((), "float32", cast="same_kind")
    table = make_table(100, signature={"frame": frame, "reward": reward})
    frames = np.arange(3 * 20, dtype=np.uint8).reshape(3, 4, 5)
    table.insert_batch([{"frame": frames[i], "reward": np.float64(i) if i == 1 else float(i)} for i in range(3)])
    batch = table.get(table.keys())
    np.testing.assert_array_equal(batch.data["frame"], frames)
    assert batch.data["reward"].tolist() == [0, 1, 2]


def test_a_batch_of_steps_may_be_of_arrays_alone(make_table: TableMaker) -> None:
    table = make_table(100, signature=COLUMNS)
    points = np.arange(4 * 2 * 3, dtype="f4").reshape(4, 2, 3)
    table.insert_batch({**steps([1, 2, 4, 5]), "points": points, "note": None})
    batch = table.get(table.keys())
    np.testing.assert_array_equal(batch.data["points"], points)
    assert batch.mask["note"].tolist() == [False] * 4


@pytest.mark.parametrize("chunk_steps", CHUNK_STEPS)
def test_spans_are_padded_to_the_longest_item_and_the_longest_row(make_table: TableMaker, chunk_steps: int) -> None:
    table = make_table(100, signature=COLUMNS, item_steps=7, chunk_steps=chunk_steps)
    expected: list[list[int | None]] = []
    with table.writer() as writer:
        for n in range(30):
            writer.append(step(n))
            length = min(n + 1, 1 + n % 7)
            writer.create_item(length=length)
            expected.append([*range(n + 1 - length, n + 1), *[None] * (7 - length)])
    check_rows(table.get(table.keys()), expected)


def test_rows_of_any_size_can_be_joined(make_table: TableMaker) -> None:
    table = make_table(100, signature=COLUMNS, item_steps=3)
    with table.writer() as writer:
        for n in range(9):
            writer.append(step(n))
            if n % 3 == 2:
                writer.create_item(length=3)
    batch = table.get(table.keys(), ragged="concat")
    np.testing.assert_array_equal(batch.data["points"], np.concatenate([points_of(n) for n in range(9)]))
    assert batch.sizes["points"].tolist() == [[[n % 5] for n in range(i, i + 3)] for i in (0, 3, 6)]
    drawn = table.sample(20, ragged="concat")
    expected = [points_of(int(n)) for n in drawn.data["n"].reshape(-1)]
    np.testing.assert_array_equal(drawn.data["points"], np.concatenate(expected))
    with pytest.raises(ValueError, match=re.escape("ragged is 'list'; expected one of 'pad', 'concat'")):
        table.sample(1, ragged="list")  # type: ignore[arg-type]


def test_columns_may_come_one_by_one(make_table: TableMaker) -> None:
    table = make_table(100, signature=COLUMNS, item_steps=2, chunk_steps=3)
    with table.writer() as writer:
        for n in range(10):
            whole = step(n)
            writer.append({"points": whole.pop("points")}, partial=True)
            writer.append({"n": whole.pop("n"), "image": whole.pop("image")}, partial=True)
            writer.append(whole)  # what is left: the state, and the note where there is one
            writer.create_item(length=min(n + 1, 2))
    check_rows(table.get(table.keys()), [[0, None], *[[n, n + 1] for n in range(9)]])


def test_a_final_step_without_an_optional_column_has_no_value_of_it(make_table: TableMaker) -> None:
    """It counts as there, so that a window which looks at it finds it; what is not optional is missing."""
    window = sr.Window({"n": 0, "note": (0, 2), "next_points": ("points", 1)})
    table = make_table(100, signature=COLUMNS, item=window)
    with table.writer() as writer:
        writer.append(step(4))
        writer.append(step(5))
        keys = writer.end_episode({"points": points_of(6)})
    assert len(keys) == 1
    batch = table.get(table.keys())
    assert batch.data["n"].tolist() == [4, 5]
    assert batch.mask["note"].tolist() == [[True, True], [True, False]]
    np.testing.assert_array_equal(batch.data["note"][1, 0], note_of(5))
    assert batch.sizes["next_points"].tolist() == [[0], [1]]
    np.testing.assert_array_equal(batch.data["next_points"][1], points_of(6))


@pytest.mark.parametrize("chunk_steps", CHUNK_STEPS)
def test_windows_show_what_is_in_the_heap(make_table: TableMaker, chunk_steps: int) -> None:
    item = sr.NStep(2, next=("points", "image"), summed=("note",))
    table = make_table(100, signature=COLUMNS, item=item, chunk_steps=chunk_steps)
    with table.writer() as writer:
        for n in range(1, 6):
            writer.append(step(n))
        writer.end_episode(step(6))
    batch = table.get(table.keys())
    assert batch.data["n"].tolist() == [1, 2, 3, 4, 5]
    for i, n in enumerate((3, 4, 5, 6, 6)):
        np.testing.assert_array_equal(batch.data["next_image"][i], image_of(n))
        np.testing.assert_array_equal(batch.data["next_points"][i, : n % 5], points_of(n))
    assert batch.mask["note"].tolist() == [[True, True], [True, False], [False, True], [True, True], [True, False]]
    assert batch.data["note"].shape == (5, 2, 2)


def test_a_repeated_first_step_has_its_values_and_is_masked(make_table: TableMaker) -> None:
    window = sr.Window({"points": (-2, 1), "image": (-2, 1)}, at_start="repeat")
    table = make_table(100, signature=COLUMNS, item=window)
    with table.writer() as writer:
        writer.append(step(4))
        writer.append(step(3))
    batch = table.get(table.keys())
    for i, ns in enumerate(([4, 4, 4], [4, 4, 3])):
        for j, n in enumerate(ns):
            np.testing.assert_array_equal(batch.data["image"][i, j], image_of(n))
            np.testing.assert_array_equal(batch.data["points"][i, j, : n % 5], points_of(n))
    assert batch.mask["points"].tolist() == [[False, False, True], [False, True, True]]


# --- the history ----------------------------------------------------------------------------------------------------


def test_the_history_shows_values_of_every_kind(make_table: TableMaker) -> None:
    table = make_table(100, signature=COLUMNS, chunk_steps=3)
    with table.writer(history=5) as writer:
        for n in range(8):
            writer.append(step(n))
        writer.append({"points": points_of(8)}, partial=True)
        h = writer.history
        np.testing.assert_array_equal(h["image"][-3].numpy(), image_of(6))
        np.testing.assert_array_equal(h["state"][-3].numpy(), state_of(6))
        np.testing.assert_array_equal(h["points"][-1].numpy(), points_of(8))
        padded = h["points"][-3:]
        assert padded.shape == padded.numpy().shape == (3, 3, 3)
        assert [len(rows) for rows in padded.tolist()] == [1, 2, 3]
        np.testing.assert_array_equal(np.asarray(padded)[1, :2], points_of(7))
        assert h["points"][:0].numpy().shape == (0, 0, 3)
        assert h["note"][[-3, -2]].numpy().astype("f4").tolist() == [[0, 0], [7, 1]]
        with pytest.raises(sr.SignatureMismatch, match="step 8 lacks column 'note'"):
            h["note"][-1].numpy()
        with pytest.raises(sr.SignatureMismatch, match="step 8 lacks column 'image'"):
            h["image"][-1].numpy()


def test_trajectories_select_what_is_in_the_heap(make_table: TableMaker) -> None:
    table = make_table(100, signature=COLUMNS, chunk_steps=3)
    with table.writer(history=9) as writer:
        for n in range(1, 10):
            writer.append(step(n))
        h = writer.history
        trajectory = {"images": h["image"][::-2], "last": h["points"][-1], "notes": (h["note"][2:5], h["state"][0])}
        writer.create_item(trajectory=trajectory)
    batch = table.sample(2)
    for i, n in enumerate((9, 7, 5, 3, 1)):
        np.testing.assert_array_equal(batch.data["images"][0, i], image_of(n))
    np.testing.assert_array_equal(batch.data["last"][1], points_of(9))
    assert batch.sizes["last"].tolist() == [[4], [4]]
    assert batch.mask["notes"][0].tolist() == [[False, True, True]] * 2
    np.testing.assert_array_equal(batch.data["notes"][1][0], state_of(1))


# --- what is stored -------------------------------------------------------------------------------------------------

DTYPES = [np.dtype(code) for code in "?bBhHiIlLefdFD"] + [np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.int4)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_through_shared_memory_bit_for_bit(
    make_table: TableMaker, rng: np.random.Generator, dtype: np.dtype[Any]
) -> None:
    signature = {
        "packed": sr.ArraySpec((3, 5), dtype, compression="lz4"),
        "ragged": sr.ArraySpec((None,), dtype),
        "both": sr.ArraySpec((2, None, None), dtype, compression="lz4"),
        "optional": sr.ArraySpec((), dtype, optional=True),
        "empty": sr.ArraySpec((0, 2), dtype, optional=True),
        "mutable": sr.ArraySpec((3,), dtype, mutable=True),
    }
    high = 2 if dtype.kind == "b" else 8

    def bits(*shape: int) -> np.ndarray[Any, Any]:
        raw = rng.integers(0, high, size=(int(np.prod(shape)), dtype.itemsize), dtype=np.uint8)
        return raw.reshape(-1).view(dtype).reshape(shape)

    table = make_table(100, signature=signature)
    shapes = {"packed": (3, 5), "ragged": (7,), "both": (2, 3, 40), "optional": (), "empty": (0, 2), "mutable": (3,)}
    put = [{name: bits(*shape) for name, shape in shapes.items()} for _ in range(5)]
    for one in put:
        table.insert(one)
    batch = table.get(table.keys())
    for name in signature:
        assert batch.data[name].dtype == dtype
        assert batch.data[name].tobytes() == b"".join(one[name].tobytes() for one in put)


def test_compressed_frames_take_fewer_bytes_than_raw_ones(make_table: TableMaker) -> None:
    """As `info().bytes` says, which counts the blocks that are in use."""
    shape, count = (84, 84), 64
    frames = [np.outer(np.arange(84), np.ones(84)).astype(np.uint8) + n for n in range(count)]
    packed = make_table(count, signature={"x": sr.ArraySpec(shape, "uint8", compression="lz4", mean_bytes=600)})
    raw = make_table(count, signature={"x": sr.ArraySpec(shape, "uint8")})
    for frame in frames:
        packed.insert({"x": frame})
        raw.insert({"x": frame})
    np.testing.assert_array_equal(packed.get(packed.keys()).data["x"], np.array(frames))
    assert raw.info().bytes >= count * 84 * 84
    assert 0 < packed.info().bytes < count * 84 * 84 / 4
    stats = packed._arena.stats()
    in_heap = (stats["num_blocks"] - stats["free_blocks"]) * stats["block_bytes"]
    chunk_bytes = packed.estimate().chunk_bytes
    assert packed.info().bytes == in_heap + stats["used_chunks"] * chunk_bytes


def test_values_go_with_their_chunk(make_table: TableMaker) -> None:
    table = make_table(100, signature=COLUMNS, chunk_steps=4)
    everything = free_blocks(table)
    with table.writer(history=4) as writer:
        for n in range(50):
            writer.append(step(n))
            writer.create_item(length=1)
    assert free_blocks(table) < everything
    table.reset()
    with table.writer(history=4) as writer:  # takes chunks, and with the first one what was retired is free
        for n in range(50, 60):
            writer.append(step(n))
            writer.create_item(length=1)
    check_rows(table.get(table.keys()), [[n] for n in range(50, 60)])
    table.reset()
    assert check(table) == []


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"points": np.zeros((2, 4), "f4")}, "column 'points': expected float32 (None, 3), got float32 (2, 4)"),
        ({"points": None}, "column 'points': is None; expected float32 (None, 3)"),
        ({"image": np.zeros((12, 5), "f4")}, "column 'image': expected uint8 (12, 5), got float32 (12, 5)"),
        ({"note": np.zeros(3, "f4")}, "column 'note': expected bfloat16 (2,), got float32 (3,)"),
    ],
)
def test_a_step_that_does_not_fit_leaves_everything_as_it_was(
    make_table: TableMaker, changes: dict[str, Any], text: str
) -> None:
    table = make_table(100, signature=COLUMNS)
    table.insert(step(1))
    before = free_blocks(table)
    with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
        table.insert({**step(2), **changes})
    with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
        table.insert_batch(
            {name: [value] for name, value in {**step(2), **changes}.items()}
            | {"n": np.zeros(1, "i8"), "state": np.zeros((1, 3), "f4")}
        )
    with table.writer() as writer:
        writer.append({"n": 1}, partial=True)
        with pytest.raises(sr.SignatureMismatch, match=text.split(":")[0]):
            writer.append({**{name: value for name, value in step(2).items() if name != "n"}, **changes})
        assert writer.history["n"][-1].numpy() == 1
    assert free_blocks(table) == before
    check_rows(table.get(table.keys()), [1])


def test_a_call_that_is_repeated_takes_no_more_blocks(make_table: TableMaker) -> None:
    table = make_table.queue(3, signature=COLUMNS, chunk_steps=64)
    for n in range(3):
        table.insert(step(n))
    taken = set()
    for n in range(3, 40):
        with pytest.raises(sr.RateLimitTimeout):
            table.insert(step(n), timeout_s=0)
        taken.add(free_blocks(table))
    assert len(taken) <= 4  # blocks that one of the larger rows needed are kept for the next
    assert check(table) == []
    check_rows(table.sample(3), [0, 1, 2])
    table.insert(step(40))
    check_rows(table.sample(1), [40])


@pytest.mark.parametrize("name", ["image", "points", "note", "state"])
def test_rules_that_read_a_value_need_a_plain_column(make_table: TableMaker, name: str) -> None:
    shapes = {"image": {"compression": "lz4"}, "points": {}, "note": {"optional": True}, "state": {"mutable": True}}
    spec = sr.ArraySpec((None,) if name == "points" else (), "float32", **shapes[name])  # type: ignore[arg-type]
    table = make_table(10, signature={"x": sr.ArraySpec((), "float32"), name: spec})
    text = re.escape(f"column '{name}' is {spec}; expected a plain column, neither compressed, of variable shape")
    for rule in (
        sr.Window({"x": 0}, priority=name),
        sr.Window({"x": 0}, priority=sr.td_priority(name)),
        sr.Pattern({"x": ("x", -1)}, conditions=[sr.when.data[name] > 3]),
    ):
        with pytest.raises(sr.SignatureMismatch, match=text):
            table.writer(patterns=[rule])


@pytest.mark.parametrize("options", [{"compression": "lz4"}, {"optional": True}, {"mutable": True}, {"per": "item"}])
def test_the_end_of_an_episode_is_a_plain_column(options: dict[str, Any]) -> None:
    spec = sr.ArraySpec((), "bool", **options)
    with pytest.raises(
        ValueError, match=r"table 't', column 'terminated': is bool .* says where episodes end; expected a"
    ):
        sr.Table("t", {"x": sr.ArraySpec((), "f4"), "terminated": spec}, 10)


def frames_of(n: int) -> Any:
    """Noise that stays, and a block that moves over it."""
    frames = np.repeat(np.random.default_rng(5).integers(0, 256, (1, 30, 30), np.uint8), n, axis=0)
    for i in range(n):
        frames[i, i % 25 : i % 25 + 4, 2 * i % 25 : 2 * i % 25 + 4] = i % 256
    return frames


FRAMES = {"frame": sr.ArraySpec((30, 30), "uint8", compression="lz4"), "n": sr.ArraySpec((), "int64")}


@pytest.mark.parametrize("chunk_steps", [1, 7, 64])
def test_rows_that_are_alike_come_back_however_they_went_in(make_table: TableMaker, chunk_steps: int) -> None:
    frames = frames_of(60)
    table = make_table(1000, signature=FRAMES, chunk_steps=chunk_steps, max_streams=8)
    for n in range(20):
        table.insert({"frame": frames[n], "n": n})
    table.insert_batch({"frame": frames[20:40], "n": np.arange(20, 40)})
    table.insert_batch([{"frame": frames[n], "n": n} for n in range(40, 50)])
    table.insert_batch({"frame": list(frames[50:60]), "n": np.arange(50, 60)})
    table.extend({"frame": frames, "n": np.arange(60)})
    spans = make_table(1000, signature=FRAMES, item_steps=2, chunk_steps=chunk_steps, max_streams=8)
    with spans.vector_writer(3, history=2) as writer:
        for n in range(0, 60, 3):
            writer.append({"frame": frames[n : n + 3], "n": np.arange(n, n + 3)})
            if n > 0:
                writer.create_items(length=2)
    assert table.get(table.keys()).data["n"].tolist() == [*range(60)] * 2
    for filled in (table, spans):
        batch = filled.get(filled.keys())
        np.testing.assert_array_equal(batch.data["frame"], frames[batch.data["n"]])
        assert check(filled) == []


def test_rows_of_steps_that_did_not_go_in_are_not_leant_on(make_table: TableMaker) -> None:
    frames = frames_of(40)
    table = make_table.queue(3, signature=FRAMES, chunk_steps=64, max_streams=2)
    for n in range(3):
        table.insert({"frame": frames[n], "n": n})
    for n in range(3, 12):
        for wrong in (30, 31):
            with pytest.raises(sr.RateLimitTimeout):
                table.insert({"frame": frames[wrong], "n": wrong}, timeout_s=0)
        with pytest.raises(sr.RateLimitTimeout):
            table.insert_batch({"frame": frames[32:36], "n": np.arange(32, 36)}, timeout_s=0)
        np.testing.assert_array_equal(table.sample(1).data["frame"][0], frames[n - 3])
        table.insert({"frame": frames[n], "n": n})
    np.testing.assert_array_equal(table.sample(3).data["frame"], frames[9:12])


def test_rows_written_bit_by_bit_are_in_the_history_and_in_items(make_table: TableMaker) -> None:
    frames = frames_of(40)
    table = make_table(50, signature=FRAMES, item_steps=2, chunk_steps=64)
    with table.writer(history=8) as writer:
        for n in range(0, 30, 3):
            writer.append({"frame": frames[n], "n": n})
            writer.append({"frame": frames[n + 1]}, partial=True)
            np.testing.assert_array_equal(writer.history["frame"][-2:].numpy(), frames[n : n + 2])
            writer.append({"n": n + 1})
            writer.append({"frame": frames[n + 2], "n": n + 2})
            writer.create_item(length=2)
            writer.append({"n": 99}, partial=True)  # a final step without a frame
            writer.end_episode()
    batch = table.get(table.keys())
    np.testing.assert_array_equal(batch.data["frame"], frames[batch.data["n"]])


def test_the_heap_has_room_for_as_many_rows_as_their_mean_bytes_say(make_table: TableMaker) -> None:
    frames = frames_of(400)
    mean = mean_stored_bytes(FRAMES["frame"], frames)
    assert 100 < mean < 300  # an eighth of 900, and what moves
    spec = sr.ArraySpec((30, 30), "uint8", compression="lz4", mean_bytes=mean)
    table = make_table(400, signature={**FRAMES, "frame": spec}, max_streams=1)
    table.extend({"frame": frames, "n": np.arange(400)})
    assert len(table) == 400
    assert table.info().evicted_for_room == 0
    np.testing.assert_array_equal(table.get(table.keys()).data["frame"], frames)
    for column, rows, text in (
        (sr.ArraySpec((30, 30), "uint8"), frames, "mean_stored_bytes: the column is uint8 (30, 30); expected one with"),
        (FRAMES["frame"], frames[:0], "mean_stored_bytes: rows are uint8 (0, 30, 30); expected uint8 (n, *(30, 30))"),
        (FRAMES["frame"], frames[:, 1:], "mean_stored_bytes: rows are uint8 (400, 29, 30); expected uint8"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            mean_stored_bytes(column, rows)
