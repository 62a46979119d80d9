"""Options of `sample` that say what a batch shows, in which order of axes, and into which arrays it is written."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.tables.table import TableHandle
from tests.support.tables import Pair, TableMaker, by_path, client_of, numbers, step, steps
from tests.support.waiting import eventually

SIGNATURE = {
    "observation": {"camera": sr.ArraySpec((2, 3), "uint8"), "state": sr.ArraySpec((4,), "float32")},
    "reward": sr.ArraySpec((), "float32"),
    "n": sr.ArraySpec((), "int64"),
}
PATHS = ["observation/camera", "observation/state", "reward", "n"]


def row(n: int) -> dict[str, Any]:
    return {
        "observation": {"camera": np.full((2, 3), n % 251, np.uint8), "state": np.full(4, n, np.float32)},
        "reward": float(n),
        "n": n,
    }


def sequences(
    make_table: TableMaker, length: int = 5, episodes: tuple[int, ...] = (7, 3, 12), **options: Any
) -> TableHandle:
    """Windows of `length` steps around the steps of some episodes; the steps are numbered on."""
    table = make_table(200, signature=SIGNATURE, item=sr.Sequence(length), **options)
    write_episodes(table, episodes)
    return table


def write_episodes(table: TableHandle, episodes: tuple[int, ...], first: int = 1) -> None:
    with table.writer(history=30) as writer:
        for steps_of_episode in episodes:
            for _ in range(steps_of_episode):
                writer.append(row(first))
                first += 1
            writer.end_episode()


def leaves(tree: Any, path: str = "") -> dict[str, NDArray[Any]]:
    """The leaves of nested dicts, by path."""
    if not isinstance(tree, dict):
        return {path: tree}
    found: dict[str, NDArray[Any]] = {}
    for name, part in tree.items():
        found.update(leaves(part, f"{path}/{name}" if path else name))
    return found


def padded(values: NDArray[Any], rows: int) -> NDArray[Any]:
    """The same with more rows of zeros."""
    wider = np.zeros((values.shape[0], rows, *values.shape[2:]), values.dtype)
    wider[:, : values.shape[1]] = values
    return wider


# --- all of them together against the plain call ----------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.sets(st.sampled_from(PATHS), min_size=1),
    n=st.integers(1, 70),
    extra=st.dictionaries(st.sampled_from(PATHS), st.integers(0, 3)),
    time_major=st.booleans(),
    into=st.sampled_from(["fresh", "arrays", "batch"]),
    seed=st.integers(0, 2**32),
)
def test_a_batch_with_options_is_the_plain_one_pruned_padded_and_turned(
    looked_at: TableHandle,
    chosen: set[str],
    n: int,
    extra: dict[str, int],
    time_major: bool,
    into: str,
    seed: int,
) -> None:
    plain = client_of(looked_at).table(looked_at.name, seed=seed).sample(n, count=False)
    rows = {path: 5 + extra.get(path, 0) for path in chosen}
    options: dict[str, Any] = {"columns": sorted(chosen), "pad_to": rows, "time_major": time_major, "count": False}
    if into != "fresh":
        used = looked_at.sample(n, **options)
        for array in leaves(used.data).values():
            array[...] = 77  # what a batch before left
        options["out"] = used if into == "batch" else used.data
    batch = client_of(looked_at).table(looked_at.name, seed=seed).sample(n, **options)
    assert batch.keys.tolist() == plain.keys.tolist()
    for got, wanted in ((batch.data, plain.data), (batch.mask, plain.mask)):
        found, all_of_them = leaves(got), leaves(wanted)
        assert found.keys() == chosen
        for path in chosen:
            expected = padded(all_of_them[path], rows[path])
            np.testing.assert_array_equal(found[path], expected.swapaxes(0, 1) if time_major else expected)
    assert {path: lengths.tolist() for path, lengths in leaves(batch.lengths).items()} == {
        path: lengths.tolist() for path, lengths in leaves(plain.lengths).items() if path in chosen
    }
    if into != "fresh":
        before = leaves(used.data)
        for path, array in leaves(batch.data).items():
            assert array.ctypes.data == before[path].ctypes.data


@pytest.fixture
def looked_at(make_table: TableMaker) -> TableHandle:
    return sequences(make_table)


# --- columns ----------------------------------------------------------------------------------------------------------


def test_prefixes_and_single_outputs_are_shown_in_the_tables_order(make_table: TableMaker) -> None:
    table = sequences(make_table)
    batch = table.sample(4, columns=["reward", "observation"])
    assert list(batch.data) == ["observation", "reward"]
    assert list(batch.data["observation"]) == ["camera", "state"]
    assert leaves(table.sample(4, columns="observation/state").data).keys() == {"observation/state"}
    assert batch.data["observation"]["state"].shape == (4, 5, 4)


def test_outputs_of_a_window_have_names_of_their_own(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item=sr.NStep(3))
    write_episodes(table, (9,))
    batch = table.sample(8, columns=["next_observation", "reward"])
    assert leaves(batch.data).keys() == {"next_observation/camera", "next_observation/state", "reward"}
    assert batch.data["next_observation"]["state"].shape == (8, 4)
    assert batch.data["reward"].shape == (8, 3)
    only = table.get(batch.keys, columns=["next_observation/state"])
    np.testing.assert_array_equal(only.data["next_observation"]["state"], batch.data["next_observation"]["state"])


def test_named_tuples_and_tuples_are_pruned_too(make_table: TableMaker) -> None:
    table = make_table(10)
    table.insert_batch(steps(range(4)))
    whole = table.sample(3, columns=["pair"]).data["pair"]
    assert isinstance(whole, Pair)
    half = table.sample(3, columns=["pair/half"]).data["pair"]
    assert type(half).__name__ == "Pair"
    assert half._fields == ("half",)
    nested = make_table(10, signature={"a": (sr.ArraySpec((), "int8"), [sr.ArraySpec((), "int16")] * 2)})
    nested.insert({"a": (1, [2, 3])})
    assert [part.tolist() for part in nested.sample(1, columns=["a[1][1]"]).data["a"][0]] == [[3]]
    assert nested.sample(1, columns=["a[1]"]).data["a"][0][0].tolist() == [2]


def test_names_that_are_none_are_refused_with_those_there_are(make_table: TableMaker) -> None:
    table = sequences(make_table)
    calls: list[Callable[..., Batch]] = [partial(table.sample, 2), partial(table.get, table.keys()[:1])]
    for call in calls:
        with pytest.raises(sr.SignatureMismatch, match=r"columns has 'rewad'; its items have observation/camera, obs"):
            call(columns=["reward", "rewad"])
        with pytest.raises(sr.SignatureMismatch, match="columns has 'observation/cam'; its items have"):
            call(columns=["observation/cam"])
        with pytest.raises(ValueError, match="columns is empty; expected at least one of observation/camera"):
            call(columns=[])
        for bad in (3, ["n", 3], [["n"]]):
            with pytest.raises(TypeError, match="expected names of outputs"):
                call(columns=bad)
    assert table.info().samples == 0


def test_a_batch_of_nothing_has_the_columns_asked_for(make_table: TableMaker) -> None:
    table = make_table(10, signature=SIGNATURE)
    gone = np.array([12345])
    assert leaves(table.get(gone, columns=["n", "observation/state"]).data).keys() == {"observation/state", "n"}
    with pytest.raises(sr.SignatureMismatch, match="columns has 'm'"):
        table.get(gone, columns=["m"])
    windows = sequences(make_table)
    batch = windows.get(gone, columns=["reward"])
    assert len(batch) == 0
    assert (batch.data["reward"].shape, batch.mask["reward"].shape) == ((0, 5), (0, 5))


def test_an_option_waits_for_the_first_item_and_says_so(make_table: TableMaker) -> None:
    table = make_table.queue(10, signature=SIGNATURE)
    with pytest.raises(sr.RateLimitTimeout, match=r"sample not admitted within 0.02 s: the table is empty"):
        table.sample(1, columns=["n"], timeout_s=0.02)
    with pytest.raises(sr.RateLimitTimeout, match=r"sample\(count=False\) not admitted within 0 s: the table is empty"):
        table.sample(1, columns=["n"], timeout_s=0, count=False)
    drawn: list[Batch] = []
    other = make_table.client.table(table.name)
    learner = threading.Thread(target=lambda: drawn.append(other.sample(2, columns=["n"], timeout_s=100)))
    learner.start()
    eventually(lambda: table.info().blocked_samples == 1)
    table.insert(row(1))
    table.insert(row(2))
    learner.join()
    assert drawn[0].data["n"].tolist() == [1, 2]


# --- pad_to and time_major --------------------------------------------------------------------------------------------


def test_shapes_do_not_vary_whatever_is_drawn(make_table: TableMaker) -> None:
    table = sequences(make_table, episodes=(2, 30))
    assert {table.sample(1).data["n"].shape for _ in range(50)} == {(1, 5)}
    assert {table.sample(1, pad_to=9).data["n"].shape for _ in range(50)} == {(1, 9)}
    batch = table.sample(6, pad_to=9)
    assert not batch.mask["n"][:, 5:].any()
    assert not batch.data["n"][:, 5:].any()


def test_each_output_can_be_padded_for_itself(make_table: TableMaker) -> None:
    table = sequences(make_table)
    pad_to: dict[str, Any] = {"observation": 6, "n": np.int64(8)}
    batch = table.sample(2, pad_to=pad_to)
    assert {path: values.shape[1] for path, values in leaves(batch.data).items()} == {
        "observation/camera": 6,
        "observation/state": 6,
        "reward": 5,
        "n": 8,
    }


@pytest.mark.parametrize(
    ("pad_to", "error", "text"),
    [
        (4, ValueError, "pad_to is 4 for 'observation/camera', but the table's longest item has 5 rows there"),
        ({"n": 4}, ValueError, "pad_to is 4 for 'n', but the table's longest item has 5 rows there"),
        (0, ValueError, "pad_to is 0; expected 1 to 2147483647 rows"),
        ({"n": -1}, ValueError, r"pad_to\['n'\] is -1; expected 1 to 2147483647 rows"),
        (2.5, TypeError, "pad_to is 2.5; expected a number of rows"),
        (True, TypeError, "pad_to is True; expected a number of rows"),
        ({"m": 9}, sr.SignatureMismatch, "pad_to has 'm'; its items have observation/camera, "),
    ],
)
def test_too_little_room_and_no_number_are_refused(
    make_table: TableMaker, pad_to: Any, error: type[Exception], text: str
) -> None:
    table = sequences(make_table)
    with pytest.raises(error, match=text):
        table.sample(3, pad_to=pad_to)
    assert table.info().samples == 0


def test_what_has_no_step_axis_can_not_be_padded(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item=sr.NStep(3))
    write_episodes(table, (9,))
    with pytest.raises(ValueError, match="pad_to has 'next_observation', which has no step axis in this batch"):
        table.sample(3, pad_to={"next_observation": 3})
    with pytest.raises(ValueError, match="pad_to is 3, but no output of the batch has a step axis"):
        table.sample(3, columns=["next_observation"], pad_to=3)
    turned = table.sample(3, time_major=True)
    assert (turned.data["reward"].shape, turned.data["n"].shape) == ((3, 3), (3,))
    assert turned.mask["n"].shape == (3,)


def test_a_time_major_batch_that_is_cut_short_is_cut_along_its_items(make_table: TableMaker) -> None:
    table = sequences(make_table, rate_limiter=sr.rate_limiters.RateLimiter(1.0, 1, 0.0, 1e9))
    there = len(table)
    batch = table.sample(there + 10, at_least=1, time_major=True)
    assert len(batch) == there
    assert batch.data["observation"]["state"].shape == (5, there, 4)
    assert batch.mask["n"].shape == (5, there)
    np.testing.assert_array_equal(batch.data["n"] > 0, batch.mask["n"])


def test_n_step_targets_are_the_same_of_a_time_major_batch(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE, item=sr.NStep(3))
    with table.writer() as writer:
        for first, num_steps in ((1, 9), (10, 4)):
            for n in range(first, first + num_steps):
                writer.append(row(n))
            writer.end_episode({"observation": row(first + num_steps)["observation"]})
    batches = [client_of(table).table(table.name, seed=3).sample(16, time_major=turned) for turned in (False, True)]
    plain, turned = (sr.n_step_targets(batch, 0.9) for batch in batches)
    for one, other in zip(plain, turned, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


# --- out --------------------------------------------------------------------------------------------------------------


def test_a_batch_is_written_into_the_arrays_given(make_table: TableMaker) -> None:
    table = make_table(10)
    table.insert_batch(steps(range(10)))
    out = table.sample(32).data
    for _ in range(3):
        for array in by_path(out).values():
            array[...] = 1
        batch = table.sample(32, out=out)
        numbers(batch)
        for path, array in by_path(batch.data).items():
            assert array.ctypes.data == by_path(out)[path].ctypes.data


def test_no_byte_of_an_earlier_batch_shows(make_table: TableMaker) -> None:
    table = sequences(make_table, episodes=(1, 2, 3, 4, 5, 6))
    batch = table.sample(50, pad_to=8)
    for _ in range(20):
        for array in leaves(batch.data).values():
            array[...] = 99
        batch = table.sample(50, out=batch)
        for path, array in leaves(batch.data).items():
            assert not array[~leaves(batch.mask)[path]].any(), path
        assert batch.data["n"].shape == (50, 8)


def test_a_batch_that_is_cut_short_shows_the_first_of_the_arrays(make_table: TableMaker) -> None:
    table = make_table.queue(20)
    table.insert_batch(steps(range(6)))
    out = {"n": np.full(10, -1)}
    batch = table.sample(10, at_least=3, columns=["n"], out=out)
    assert batch.data["n"].tolist() == [0, 1, 2, 3, 4, 5]
    assert out["n"].tolist() == [0, 1, 2, 3, 4, 5, -1, -1, -1, -1]


def wrong(array: NDArray[Any]) -> dict[str, tuple[Any, type[Exception], str]]:
    """Wrong values in place of an array, and the text of each error."""
    read_only = array.copy()
    read_only.flags.writeable = False
    shape = r"expected a writable C-contiguous array float32 \[8, L, 4\]"
    return {
        "another dtype": (array.astype(np.float64), ValueError, rf"is float64 \[8, 5, 4\]; {shape}"),
        "another byte order": (array.astype(">f4"), ValueError, rf"is >f4 \[8, 5, 4\]; {shape}"),
        "too few items": (array[:7], ValueError, rf"is float32 \[7, 5, 4\]; {shape}"),
        "too many items": (np.concatenate([array, array]), ValueError, rf"is float32 \[16, 5, 4\]; {shape}"),
        "another row": (array[..., :3].copy(), ValueError, rf"is float32 \[8, 5, 3\]; {shape}"),
        "no step axis": (array[:, 0].copy(), ValueError, rf"is float32 \[8, 4\]; {shape}"),
        "no rows": (array[:, :0].copy(), ValueError, rf"is float32 \[8, 0, 4\]; {shape}"),
        "too few rows": (
            array[:, :4].copy(),
            ValueError,
            "has room for 4 rows an item, but the table's longest item has 5",
        ),
        "not contiguous": (np.repeat(array, 2, 1)[:, ::2], ValueError, f"is not contiguous; {shape}"),
        "Fortran's order": (np.asfortranarray(array), ValueError, f"is not contiguous; {shape}"),
        "read-only": (read_only, ValueError, f"is read-only; {shape}"),
        "a list": (array.tolist(), TypeError, f"is list; {shape}; a tensor has .numpy"),
        "None": (None, TypeError, f"is NoneType; {shape}"),
    }


@pytest.mark.parametrize("fault", wrong(np.zeros((8, 5, 4), np.float32)))
def test_an_array_that_does_not_fit_is_refused_by_name(make_table: TableMaker, fault: str) -> None:
    table = sequences(make_table)
    out = table.sample(8, count=False).data
    out["observation"]["state"], error, text = wrong(out["observation"]["state"])[fault]
    before = {path: np.copy(array) for path, array in leaves(out).items() if isinstance(array, np.ndarray)}
    with pytest.raises(error, match=f"out, 'observation/state' {text}"):
        table.sample(8, out=out)
    for path, array in before.items():
        np.testing.assert_array_equal(leaves(out)[path], array)
    assert table.info().samples == 0


def test_a_structure_that_is_not_the_batchs_is_refused(make_table: TableMaker) -> None:
    table = sequences(make_table)
    out = table.sample(8, count=False).data
    without = {name: out[name] for name in ("observation", "n")}
    with pytest.raises(
        sr.SignatureMismatch, match=r"out must be a dict with the keys 'observation', 'reward', 'n'.*; got one"
    ):
        table.sample(8, out=without)
    with pytest.raises(sr.SignatureMismatch, match=r"out at 'observation' must be a dict with the keys .*; got nd"):
        table.sample(8, out={**out, "observation": out["reward"]})
    with pytest.raises(sr.SignatureMismatch, match="must be a dict with the keys 'n'"):
        table.sample(8, columns=["n"], out=out)
    with pytest.raises(sr.SignatureMismatch, match="out is a batch with other columns or another order of axes"):
        table.sample(8, columns=["n"], out=table.sample(8, count=False))
    with pytest.raises(sr.SignatureMismatch, match="out is a batch with other columns or another order of axes"):
        table.sample(8, out=table.sample(8, count=False), time_major=True)
    assert table.info().samples == 0


def test_arrays_of_the_same_memory_are_refused(make_table: TableMaker) -> None:
    table = sequences(make_table)
    state = np.zeros((8, 5, 4), np.float32)
    out = {"observation": {"state": state}, "reward": state.reshape(-1)[120:].reshape(8, 5)}
    with pytest.raises(
        ValueError, match="out, 'reward' lies in the same memory as 'observation/state'; expected an array of"
    ):
        table.sample(8, columns=["observation/state", "reward"], out=out)
    pair = np.zeros((2, 8, 5), np.float32)  # neighbours do not overlap
    halves = {"reward": pair[0]}
    assert len(table.sample(8, columns=["reward"], out=halves)) == 8


def test_pad_to_and_out_must_agree(make_table: TableMaker) -> None:
    table = sequences(make_table)
    out = {"n": np.zeros((4, 7), np.int64)}
    assert table.sample(4, columns=["n"], out=out, pad_to=7).data["n"].shape == (4, 7)
    with pytest.raises(
        ValueError, match=r"out, 'n' is int64 \[4, 7\]; expected a writable C-contiguous array int64 \[4, 6\]"
    ):
        table.sample(4, columns=["n"], out=out, pad_to=6)


def test_an_item_that_is_too_long_is_not_drawn_and_so_not_lost(make_table: TableMaker) -> None:
    """Of a queue whose third item is longer than the batch has room for."""
    table = make_table.queue(20, signature=SIGNATURE, item=sr.Episode(), item_steps=6)
    write_episodes(table, (3, 2))
    out = table.sample(1, columns=["n"], pad_to=4).data
    write_episodes(table, (6,), first=10)
    with pytest.raises(
        ValueError, match="out, 'n' has room for 4 rows an item, but the table's longest item has 6 there"
    ):
        table.sample(1, columns=["n"], out=out)
    assert table.info().size == 2
    assert table.sample(2, columns=["n"]).lengths["n"].tolist() == [2, 6]


def test_one_step_items_are_looked_at_whole_and_by_columns(make_table: TableMaker) -> None:
    """`count=False` with every other option moves nothing."""
    table = make_table.queue(20)
    for n in range(5):
        table.insert(step(n))
    before = table.info()
    batch = table.sample(5, count=False, columns=["n"], out={"n": np.zeros(5, np.int64)}, time_major=True, at_least=2)
    assert batch.data["n"].tolist() == [0] * 5
    assert (table.info().samples, table.info().size) == (before.samples, 5)


def test_a_timeout_names_the_seconds_that_were_given_whatever_the_options(make_table: TableMaker) -> None:
    table = make_table.queue(8)
    table.insert_batch(steps(range(2)))
    with pytest.raises(sr.RateLimitTimeout, match=r"within 0\.05 s") as raised:
        table.sample(3, columns=["n"], timeout_s=0.05)
    assert len(raised.value.batch) == 2
