"""`shmreplay export` and `import`: items of every kind are byte for byte the same after export and import."""

import json
import os
import pathlib
import struct
import threading
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.cli.commands import export
from shmreplay.clients.cli.items import item_exporter, item_file, item_importer
from shmreplay.clients.cli.main import main
from shmreplay.clients.cli.terminal import printing
from tests.support.served import at_the_server, client
from tests.support.terminal import Terminal
from tests.support.waiting import eventually

__all__ = ["at_the_server", "client"]

STEP = {"x": np.float32(0), "frame": np.zeros((2, 3), np.uint8), "terminated": np.bool_(0)}
HEAP = {
    "words": sr.ArraySpec((None,), np.int32),
    "note": sr.ArraySpec((), np.float64, optional=True),
    "frame": sr.ArraySpec((4, 5), np.uint8, compression="lz4"),
    "goal": sr.ArraySpec((2,), np.float32, per="item"),
    "n": np.int64(0),
    "value": sr.ArraySpec((), np.float32, mutable=True),
}
BURN_IN = sr.Window({"x": (0, 4), "frame": (0, 4)}, burn_in=2, at_start="short", at_end="pad")


@pytest.fixture(scope="module")
def server() -> Iterator[sr.Server]:
    with sr.Server([table("start", STEP)]) as server:
        yield server


def table(name: str, signature: Any, **options: Any) -> sr.Table:
    return sr.Table(name, signature, options.pop("max_size", 200), max_streams=64, max_sessions=16, **options)


def step(rng: np.random.Generator, terminated: bool = False) -> dict[str, Any]:
    frame = rng.integers(0, 256, (2, 3), np.uint8)
    return {"x": np.float32(rng.normal()), "frame": frame, "terminated": np.bool_(terminated)}


def heap_step(rng: np.random.Generator, i: int) -> dict[str, Any]:
    frame = np.zeros((4, 5), np.uint8)
    frame[i % 4] = rng.integers(0, 256, 5, np.uint8)
    made = {"words": np.arange(i % 5, dtype=np.int32), "frame": frame, "n": np.int64(i), "value": np.float32(i)}
    return {**made, "note": np.float64(i)} if i % 3 else made


def fill_single(handle: Any, rng: np.random.Generator) -> None:
    for i in range(30):
        handle.insert(step(rng), priority=float(i))


def fill_episodes(handle: Any, rng: np.random.Generator) -> None:
    """Episodes of several lengths, some with a final step, the last one unfinished."""
    with handle.writer() as writer:
        for length, has_final in ((1, True), (7, True), (4, False), (9, True), (2, True)):
            for i in range(length):
                writer.append(step(rng, terminated=not has_final and i == length - 1), priority=float(i + 1))
            writer.end_episode({"frame": rng.integers(0, 256, (2, 3), np.uint8)} if has_final else None)
        for _ in range(6):
            writer.append(step(rng), priority=0.5)


def fill_streams(handle: Any, rng: np.random.Generator) -> None:
    """Streams whose items come by turns."""
    with handle.vector_writer(8) as writer:
        for _ in range(12):
            steps = [step(rng) for _ in range(8)]
            writer.append({name: np.stack([one[name] for one in steps]) for name in STEP}, priority=2.0)


def fill_by_length(handle: Any, rng: np.random.Generator) -> None:
    with handle.writer(history=6) as writer:
        for i in range(20):
            writer.append(step(rng))
            writer.create_item(priority=float(i), length=1 + i % min(6, i + 1))


def fill_trajectories(handle: Any, rng: np.random.Generator) -> None:
    """Steps with gaps, in another order, and one of a column for itself."""
    with handle.writer(history=9) as writer:
        for i in range(24):
            writer.append(step(rng))
            if i >= 8:
                chosen = {"stack": writer.history["frame"][[-1, -3, -8]], "x": writer.history["x"][-1 - i % 4 :]}
                writer.create_item(float(i), trajectory={**chosen, "last": writer.history["x"][-1]})


def fill_heap(handle: Any, rng: np.random.Generator) -> None:
    with handle.writer(history=3) as writer:
        for i in range(15):
            writer.append(heap_step(rng, i))
            goal = rng.normal(size=2).astype(np.float32)
            writer.create_item(priority=1.0, length=1 + i % min(3, i + 1), values={"goal": goal})


def fill_free(handle: Any, rng: np.random.Generator) -> None:
    for i in range(9):
        handle.insert({"i": i, "list": [1.5, "text", None][: i % 4], "array": rng.normal(size=i)}, priority=float(i))


KINDS: dict[str, Any] = {
    "single": (STEP, {}, fill_single),
    "prioritized": (STEP, {"sampler": sr.selectors.Prioritized(0.6)}, fill_single),
    "transitions": (STEP, {"item": sr.Transition(next=("frame",))}, fill_episodes),
    "n-steps": (STEP, {"item": sr.NStep(3, stack={"frame": 4}, next=("frame",), summed=("x",))}, fill_episodes),
    "zeros": (STEP, {"item": sr.NStep(2, stack={"frame": 3}, next=("frame",), at_start="zeros")}, fill_episodes),
    "sequences": (STEP, {"item": sr.Sequence(5, 2)}, fill_episodes),
    "burn-in": (STEP, {"item": BURN_IN}, fill_episodes),
    "shifted": (STEP, {"item": sr.Window({"x": (0, 6)}, period=3, at_end="shift")}, fill_episodes),
    "streams": (STEP, {"item": sr.NStep(3, next=("frame",))}, fill_streams),
    "unrolls": (STEP, {"item": sr.Unroll(4, bootstrap=("frame",))}, fill_streams),
    "lengths": (STEP, {}, fill_by_length),
    "trajectories": (STEP, {}, fill_trajectories),
    "heap": (HEAP, {"item_steps": 3}, fill_heap),
    "free": (None, {}, fill_free),
    "shards": (STEP, {"shards": 2, "item": sr.NStep(2, next=("frame",))}, fill_streams),
}  # fmt: skip


@pytest.mark.parametrize("part", [3, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_items_are_byte_for_byte_the_same(
    client: sr.Client,
    kind: str,
    part: int,
    rng: np.random.Generator,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(item_exporter, "MOST_AT_A_TIME", part)
    monkeypatch.setattr(item_importer, "MOST_AT_A_TIME", part)
    signature, options, fill = KINDS[kind]
    client.create_tables([table("a", signature, **options), table("b", signature, **options)])
    try:
        before, after = client.table("a"), client.table("b")
        fill(before, rng)
        path = str(tmp_path / "items.npz")
        n = len(before)
        assert n > 0
        assert run(capsys, "export", "a", "--to", path) == (0, f"{n} items of table 'a'", "")
        assert run(capsys, "import", "b", path) == (0, f"{n} of {n} items are in table 'b'", "")
        assert_equal(before, after)
        assert before.info().samples == 0
    finally:
        client.drop_table("a")
        client.drop_table("b")


def assert_equal(before: Any, after: Any) -> None:
    """Items of the same data and priorities, in the same order; with shards in any order."""
    a, b = before.get(before.keys()), after.get(after.keys())
    assert len(a) == len(b)
    seen = [sorted(items(batch)) if before.spec.shards > 1 else items(batch) for batch in (a, b)]
    assert seen[0] == seen[1]


def items(batch: Any) -> list[bytes]:
    """Each item as bytes: priority, data, masks and sizes, with their dtypes and shapes."""
    if isinstance(batch.data, list):
        return [repr((batch.priorities[i], batch.data[i])).encode() for i in range(len(batch))]
    trees = (batch.data, batch.mask, batch.sizes, batch.lengths)
    leaves = [leaf for tree in trees for leaf in flat(tree)]
    return [
        repr([(str(leaf.dtype), leaf.shape[1:], leaf[i].tobytes()) for leaf in (batch.priorities, *leaves)]).encode()
        for i in range(len(batch))
    ]


def flat(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for name in tree for leaf in flat(tree[name])]
    return [] if tree is None else [tree]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit code, the end of the printed line (after the path, if it has one), and the errors."""
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out.partition(": ")[2].partition(", ")[0].rstrip("\n") if code == 0 else out, err


# --- what does not go ------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(client: sr.Client, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """A file of ten items, and a table `b` of the same kind."""
    client.create_tables([table("a", STEP), table("b", STEP)])
    handle = client.table("a")
    for i in range(10):
        handle.insert(step(np.random.default_rng(i)), priority=float(i))
    path = str(tmp_path / "ten.npz")
    assert main(["export", "a", "--to", path]) == 0
    capsys.readouterr()
    yield path
    client.drop_table("a")
    client.drop_table("b")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of the error."""
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.removeprefix(f"shmreplay {arguments[0]}: ").rstrip("\n")


def test_the_file_is_read_by_numpy_without_pickle(client: sr.Client, exported: str) -> None:
    batch = client.table("a").get(client.table("a").keys())
    with np.load(exported, allow_pickle=False) as found:
        assert np.array_equal(found["keys"], batch.keys)
        assert np.array_equal(found["priorities"], np.arange(10.0))
        assert np.array_equal(found["data/frame"], batch.data["frame"])
        assert found["mask/frame"].all()
        assert found["outputs"].tolist() == ["x", "frame", "terminated"]


def test_some_keys_alone_are_exported_and_one_that_is_gone_is_named(
    client: sr.Client, exported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = client.table("a").keys()[[7, 2]].tolist()
    assert main(["export", "a", "--to", exported, "--compress", "--json", "--keys", *map(str, keys)]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == 2
    with np.load(exported, allow_pickle=False) as found:
        assert found["keys"].tolist() == keys
    before = pathlib.Path(exported).read_bytes()
    text = refused(capsys, "export", "a", "--to", exported, "--keys", str(keys[0]), "77")
    assert text == "table 'a' has no item 77, or not any more"
    assert pathlib.Path(exported).read_bytes() == before
    assert os.listdir(os.path.dirname(exported)) == ["ten.npz"]


def test_an_empty_table_gives_a_file_of_no_items(
    client: sr.Client, exported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "b", "--to", exported]) == 0
    assert main(["import", "a", exported]) == 0
    assert capsys.readouterr().out.endswith(": 0 of 0 items are in table 'a'\n")


def test_a_directory_that_is_not_there_is_said(client: sr.Client, exported: str, capsys: Any) -> None:
    assert "No such file or directory" in refused(capsys, "export", "a", "--to", f"{exported}/../none/items.npz")
    assert "No such file or directory" in refused(capsys, "import", "b", f"{exported}.none")
    for path in (os.path.dirname(exported), "/dev/null"):
        assert f"{path} is no regular file" in refused(capsys, "export", "a", "--to", path)


def test_a_link_stays_one(client: sr.Client, exported: str, capsys: Any) -> None:
    link = f"{exported}.link"
    os.symlink(exported, link)
    assert main(["export", "a", "--to", link]) == 0
    assert os.readlink(link) == exported
    assert len(np.load(exported)["keys"]) == 10


def test_tables_of_other_columns_items_or_size_take_nothing(client: sr.Client, exported: str, capsys: Any) -> None:
    others = {
        "other": sr.Table("other", {**STEP, "x": np.float64(0)}, 100),
        "windows": sr.Table("windows", STEP, 100, item=sr.NStep(2, next=("frame",))),
        "small": sr.Table("small", STEP, 9),
        "spans": sr.Table("spans", STEP, 100, item_steps=2),
    }
    client.create_tables(others.values())
    with client.table("spans").writer() as writer:
        writer.append(step(np.random.default_rng(1)))
        writer.create_item(length=1)
    said = {name: refused(capsys, "import", name, exported) for name in others}
    assert "they have other columns: column 'x': is float64 (), asked for float32 ()" in said["other"]
    assert "its item is Window(" in said["windows"]
    assert said["small"].endswith("they are 10, more than its max_size, 9")
    assert f"have another structure than those of {exported}; see" in said["spans"]
    assert [len(client.table(name)) for name in others] == [0, 0, 0, 1]
    client.drop_tables(others)


def test_files_that_are_none_are_refused(client: sr.Client, exported: str, capsys: Any) -> None:
    path = pathlib.Path(exported)
    whole = path.read_bytes()
    at = whole.index(np.arange(10.0).tobytes())  # the priorities
    flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for damaged in (b"", b"PK", whole[: len(whole) // 2], whole[:200] + b"xxxx" + whole[204:], flipped):
        path.write_bytes(damaged)
        assert "no file of items, as `shmreplay export` writes them" in refused(capsys, "import", "b", exported)
    np.savez(exported, x=np.zeros(3))
    assert "has no array 'format'" in refused(capsys, "import", "b", exported)
    assert len(client.table("b")) == 0


def test_arrays_that_do_not_go_together_are_refused(client: sr.Client, exported: str, capsys: Any) -> None:
    with np.load(exported, allow_pickle=False) as found:
        arrays = dict(found)
    bad = {
        "data/frame": np.zeros((10, 2, 4), np.uint8),
        "mask/frame": np.ones((10, 2), np.bool_),
        "shows/x": np.full(10, 5, np.int32),
        "columns": np.array([0, 1, 9]),
        "format": np.array([9]),
        "priorities": np.full(10, -1.0),
        "keys": np.zeros(9, np.int64),
        "num_steps": np.full(10, 10**6, np.int32),
    }
    for name, value in bad.items():
        np.savez(exported, **{**arrays, name: value})
        assert refused(capsys, "import", "b", exported)
    del arrays["shows/x"]
    np.savez(exported, **arrays)
    assert refused(capsys, "import", "b", exported) == f"{exported} has no array 'shows/x'; export the items again"
    assert len(client.table("b")) == 0


def test_arrays_of_another_dtype_or_shape_are_named_with_what_was_expected(
    client: sr.Client, exported: str, capsys: Any
) -> None:
    with np.load(exported, allow_pickle=False) as found:
        arrays = dict(found)
    bad: dict[str, tuple[Any, str]] = {
        "data/x": (arrays["data/x"].astype(">f4"), "is >f4; expected float32"),
        "shows/x": (arrays["shows/x"][:, None], "has shape (10, 1); expected (10)"),
        "data/frame": (np.zeros((10, 2, 4), np.uint8), "has shape (10, 2, 4); expected (10, 2, 3)"),
        "mask/frame": (np.ones((10, 2), np.bool_), "has shape (10, 2); expected (10)"),
        "ages": (np.zeros(9, np.int64), "has shape (9,); expected (10)"),
        "format": (np.array(1), "has shape (); expected (any)"),
        "squeezed": (np.array(True), "has shape (); expected (any)"),
        "names": (np.zeros(2**20 + 1, np.uint8), "has 1048577 values; expected 1048576 at most"),
    }
    for name, (value, said) in bad.items():
        np.savez(exported, **{**arrays, name: value})
        assert f"{exported}, {name!r}: {said}" in refused(capsys, "import", "b", exported)
    assert len(client.table("b")) == 0


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"{'descr': '<i8', 'fortran_order': False, 'shape': (18446744073709551616,), }", "for shape (184467"),
        (b"{'descr': '<i8', 'fortran_order': False, 'shape': (-1,), }", "for shape (-1,)"),
        (b"{'descr': '<i8', 'fortran_order': False, 'shape': (11,), }", "has 80 bytes for shape (11,) of int64"),
        (b"{'descr': (", "is no array of NumPy's"),
    ],
)
def test_headers_that_lie_are_refused(client: sr.Client, exported: str, capsys: Any, header: bytes, said: str) -> None:
    with zipfile.ZipFile(exported) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    packed = header + b"\n"
    members["keys.npy"] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(packed)) + packed + bytes(80)
    with zipfile.ZipFile(exported, "w") as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    assert said in refused(capsys, "import", "b", exported)


def test_a_file_of_more_items_than_the_table_takes_is_not_read(
    client: sr.Client, exported: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with np.load(exported, allow_pickle=False) as found:
        arrays = dict(found)
    n = 2_000_000
    numbers = {name: np.zeros(n, dtype) for name, dtype in item_file.NUMBERS.items()}
    np.savez_compressed(exported, **{**arrays, **numbers})
    read: list[int] = []
    monkeypatch.setattr(item_file.Member, "read", recording(item_file.Member.read, read))
    assert "they are 2000000, more than its max_size, 200" in refused(capsys, "import", "b", exported)
    assert max(read) < 10_000
    capsys.readouterr()


def recording(read: Any, sizes: list[int]) -> Any:
    def recorded(self: item_file.Member, n: int) -> Any:
        sizes.append(n)
        return read(self, n)

    return recorded


def test_what_is_no_regular_file_is_not_read(client: sr.Client, exported: str, capsys: Any) -> None:
    for path in ("/dev/zero", os.path.dirname(exported)):
        text = refused(capsys, "import", "b", path)
        assert text == f"{path} is no regular file; expected one that `shmreplay export` wrote"
    assert refused(capsys, "import", "b", "none.npz") == "none.npz cannot be read: No such file or directory"


@pytest.mark.parametrize("damage", ["bytes", "size"])
def test_steps_that_are_none_do_not_go_in(client: sr.Client, tmp_path: pathlib.Path, capsys: Any, damage: str) -> None:
    """Of a table without a signature, whose steps are stored as the file has them."""
    client.create_tables([table("free", None), table("empty", None)])
    fill_free(client.table("free"), np.random.default_rng(1))
    path = str(tmp_path / "free.npz")
    assert main(["export", "free", "--to", path]) == 0
    capsys.readouterr()
    with np.load(path, allow_pickle=False) as found:
        arrays = dict(found)
    begin = int(arrays["sizes"][:6].sum())
    if damage == "bytes":
        arrays["data"][begin:] = 0xFF
    else:
        arrays["sizes"][6:] = 1
    np.savez(path, **arrays)
    assert "its item 6 has a step that cannot be decoded: " in refused(capsys, "import", "empty", path)
    assert len(client.table("empty")) == 0
    client.drop_tables(["free", "empty"])


def test_sizes_that_the_data_do_not_have_are_refused(client: sr.Client, tmp_path: pathlib.Path, capsys: Any) -> None:
    client.create_tables([table("ragged", HEAP, item_steps=3), table("empty", HEAP, item_steps=3)])
    fill_heap(client.table("ragged"), np.random.default_rng(1))
    path = str(tmp_path / "ragged.npz")
    assert main(["export", "ragged", "--to", path]) == 0
    capsys.readouterr()
    with np.load(path, allow_pickle=False) as found:
        arrays = dict(found)
    for size in (-1, 5):
        sizes = arrays["sizes/words"].copy()
        sizes[3, 0] = size
        np.savez(path, **{**arrays, "sizes/words": sizes})
        assert "its sizes of 'words' are not such as its data have" in refused(capsys, "import", "empty", path)
    assert len(client.table("empty")) == 0
    client.drop_tables(["ragged", "empty"])


def test_a_call_blocked_by_the_rate_limiter_says_what_went_in(client: sr.Client, exported: str, capsys: Any) -> None:
    client.set_rate_limiter("b", sr.rate_limiters.RateLimiter(1.0, 1, -1e9, 4.0), rebase=False)
    assert main(["import", "b", exported, "--wait", "0.05"]) == 1
    out, err = capsys.readouterr()
    inserted = len(client.table("b"))
    assert 0 < inserted < 10
    assert out.endswith(f": {inserted} of 10 items are in table 'b'\n")
    assert "create_item not admitted within 0.05 s: the rate limiter" in err
    assert err.count("\n") == 1


# --- while others are at work, and ends ------------------------------------------------------------------------------


def test_a_table_in_use_is_exported_as_far_as_its_items_stay(
    client: sr.Client, server: sr.Server, tmp_path: pathlib.Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every item of the file is one that was put in, whole; what the remover took meanwhile is counted."""
    monkeypatch.setattr(item_exporter, "MOST_AT_A_TIME", 16)
    client.create_tables([table("a", {"x": np.zeros(50, np.int64)}, item=sr.Window({"x": (0, 3)}))])
    ends, begun = threading.Event(), threading.Event()

    def act() -> None:
        with server.client() as own, own.table("a").writer() as writer:
            for number in range(
                500
            ):  # the last hundred take at most so many of the 200 items, however slow the export is
                if number == 400:
                    begun.set()
                if ends.is_set():
                    break
                writer.append({"x": np.full(50, number)})

    actor = threading.Thread(target=act)
    actor.start()
    try:
        assert begun.wait(100)
        path = str(tmp_path / "items.npz")
        assert main(["export", "a", "--to", path, "--json"]) == 0
    finally:
        ends.set()
        actor.join()
    told = json.loads(capsys.readouterr().out)
    with np.load(path, allow_pickle=False) as found:
        data = found["data/x"]
    assert len(data) == told["items"] >= 100
    assert told["items"] + told["gone"] == 200
    assert (data == data[:, :1, :1] + np.arange(3)[:, None]).all()
    client.drop_table("a")


def test_an_interrupt_leaves_the_file_that_was_there(
    client: sr.Client, exported: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pathlib.Path(exported).read_bytes()

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "write_items", interrupt)
    assert main(["export", "a", "--to", exported]) == 130
    assert capsys.readouterr() == ("", "")
    assert os.listdir(os.path.dirname(exported)) == ["ten.npz"]
    assert pathlib.Path(exported).read_bytes() == before


def test_ctrl_c_at_a_terminal_ends_an_import_that_waits(client: sr.Client, exported: str) -> None:
    client.set_rate_limiter("b", sr.rate_limiters.RateLimiter(1.0, 1, -1e9, 4.0), rebase=False)
    with Terminal("import", "b", exported, "--wait", "600") as terminal:
        eventually(lambda: client.stats()["arenas"]["b"]["tables"]["b"]["blocked_inserts"] == 1)
        terminal.press("\x03")
        assert terminal.finish() == 130
        assert "^C4 of 10 items went in" in terminal.lines
        assert "Traceback" not in terminal.text
    assert len(client.table("b")) == 4


def test_a_table_that_is_dropped_under_an_import_is_told(
    client: sr.Client, exported: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_tables([table("gone", STEP)])

    def drop(self: printing.Progress, done: int) -> None:
        if done == 3:
            client.drop_table("gone")

    monkeypatch.setattr(printing.Progress, "tell", drop)
    assert main(["import", "gone", exported]) == 1
    out, err = capsys.readouterr()
    assert out.endswith(": 3 of 10 items are in table 'gone'\n")
    assert err.startswith("shmreplay import: ")
    assert err.count("\n") == 1


def test_progress_of_long_work_is_told_once_a_second(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told = printing.Progress("items are in", 50)
    for done, passed in ((1, 0.5), (2, 0.6), (3, 0.3), (40, 2.0)):
        now[0] += passed
        told.tell(done)
    assert capsys.readouterr() == ("", "2 of 50 items are in\n40 of 50 items are in\n")
