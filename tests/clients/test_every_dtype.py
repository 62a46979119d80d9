"""Every dtype that a table accepts, through every command and helper: the values come back, or the error names them.

A dtype's `kind` does not say whether NumPy itself knows it: float8_e5m2 has "f" like float32, complex32 has "W".
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import shmreplay as sr
from shmreplay.base.dtypes import is_added, is_real, number_kind
from shmreplay.clients import params
from shmreplay.clients.cli.main import main
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from tests.support.served import at_the_server, client

__all__ = ["at_the_server", "client"]

OWN = [np.dtype(code) for code in "?bBhHiIlLefdgFDG"]
ADDED = sorted(
    (
        np.dtype(found)
        for found in vars(ml_dtypes).values()
        if isinstance(found, type) and issubclass(found, np.generic)
    ),
    key=lambda dtype: dtype.name,
)
DTYPES = [*OWN, *ADDED]
REFUSED = [
    "datetime64[s]",
    "timedelta64[ns]",
    "S4",
    "U4",
    "O",
    "V8",
    np.dtype([("a", "i4")]),
    ">f4",
    np.dtypes.StringDType(),
]


def values(dtype: np.dtype[Any], *shape: int) -> NDArray[Any]:
    """Numbers that every dtype of that kind has."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 2
    return (numbers + (number_kind(dtype) in "fc")).astype(dtype)


def columns(dtype: np.dtype[Any]) -> dict[str, sr.ArraySpec]:
    """A column of each kind."""
    return {
        "x": sr.ArraySpec((), dtype),
        "v": sr.ArraySpec((3,), dtype),
        "image": sr.ArraySpec((2, 3), dtype),
        "optional": sr.ArraySpec((2,), dtype, optional=True),
        "packed": sr.ArraySpec((8,), dtype, compression="lz4"),
        "ragged": sr.ArraySpec((None,), dtype),
        "mutable": sr.ArraySpec((2,), dtype, mutable=True),
        "n": sr.ArraySpec((), "int64"),
    }


def step(dtype: np.dtype[Any], n: int = 0) -> dict[str, Any]:
    shapes = {"x": (), "v": (3,), "image": (2, 3), "optional": (2,), "packed": (8,), "ragged": (4,), "mutable": (2,)}
    return {**{name: values(dtype, *shape) for name, shape in shapes.items()}, "n": np.int64(n)}


def batch_of(dtype: np.dtype[Any], count: int) -> dict[str, NDArray[Any]]:
    steps = [step(dtype, n) for n in range(count)]
    return {name: np.stack([one[name] for one in steps]) for name in steps[0]}


def same(found: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a batch has in each row what `step` gave."""
    wanted = step(dtype)
    return all(
        found[name].dtype == wanted[name].dtype and (found[name] == wanted[name]).all()
        for name in wanted
        if name != "n"
    )


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.name)
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


def create(client: sr.Client, name: str, signature: Any, **options: Any) -> TableHandle:
    """A new table; one of that name that a failed test left is dropped."""
    if name in client.tables():
        client.drop_table(name)
    client.create_tables([sr.Table(name, signature, 64, max_streams=8, max_sessions=8, **options)])
    return client.table(name)


@pytest.fixture
def table(client: sr.Client, dtype: np.dtype[Any]) -> Iterator[TableHandle | ShardedTable]:
    """A table of twelve steps."""
    options: dict[str, Any] = {"sampler": sr.selectors.Prioritized(1.0)}
    made = create(client, "t", columns(dtype), **options)
    fill(made, dtype)
    yield made
    client.drop_table("t")


def fill(made: TableHandle, dtype: np.dtype[Any]) -> None:
    """Twelve steps, by each way in."""
    for n in range(3):
        made.insert(step(dtype, n))
    made.insert_batch(batch_of(dtype, 3))
    made.extend(batch_of(dtype, 3))
    made.insert_batch([step(dtype, n) for n in range(3)])


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, err) == (0, ""), (arguments, err)
    return out


def strict(text: str) -> Any:
    """Parses JSON as other programs do: without NaN and Infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_every_way_in_and_out_keeps_the_values(table: TableHandle, dtype: np.dtype[Any]) -> None:
    assert len(table) == 12
    assert same(table.sample(16).data, dtype)
    assert same(table.get(table.keys()).data, dtype)
    with table.sampler(4) as batches:
        assert same(next(batches).data, dtype)
    with table.view(3) as view:
        assert same(view.data, dtype)
    assert same(sr.mix([(table, 4)]).sample().data, dtype)
    keys = table.keys()[:2]
    assert table.update_data(keys, {"mutable": np.zeros((2, 1, 2), dtype)}) == 2
    assert (table.get(keys).data["mutable"] == np.zeros(2, dtype)).all()


def test_writers_keep_the_values(client: sr.Client, dtype: np.dtype[Any]) -> None:
    table = create(client, "written", columns(dtype), item=sr.Sequence(1))
    with table.writer() as writer:
        writer.append(step(dtype))
        writer.append({name: value for name, value in step(dtype).items() if name != "n"}, partial=True)
        writer.append({"n": 1})
        assert (np.asarray(writer.history["v"][-1]) == step(dtype)["v"]).all()
    with table.vector_writer(3) as fleet:
        fleet.append(batch_of(dtype, 3))
    assert same(table.get(table.keys()).data, dtype)
    assert len(table) == 5
    client.drop_table("written")


def test_every_command_shows_them(
    table: TableHandle,
    client: sr.Client,
    dtype: np.dtype[Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
) -> None:
    key = str(table.keys()[0])
    of_table = (["check", "t"], ["peek", "t"], ["inspect", "t", key], ["histogram", "t", "age"])
    for command in (["tables"], ["stats"], *of_table):
        assert said(capsys, *command)
        strict(said(capsys, *command, "--json"))
    if is_real(dtype) and not is_added(dtype):
        said(capsys, "inspect", "t", key, "--save", str(tmp_path / "image.png"), "--column", "image")
    path = str(tmp_path / "items.npz")
    said(capsys, "export", "t", "--to", path)
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name] is not None for name in file.files)
    table.reset()
    said(capsys, "import", "t", path)
    assert same(table.sample(16).data, dtype)
    declared = tmp_path / "tables.toml"
    declared.write_text(f'[tables.t]\nmax_size = 10\n[tables.t.columns]\nx = "{dtype.name}"\n')
    said(capsys, "plan", str(declared))


def test_priorities_of_them_are_read_or_refused(table: TableHandle, dtype: np.dtype[Any]) -> None:
    keys = table.keys()[:2]
    priorities = values(dtype, 2)
    if not is_real(dtype):
        with pytest.raises(TypeError, match=f"priorities have dtype {dtype}"):
            table.update_priorities(keys, priorities)
        return
    wanted = np.abs(priorities.astype(np.float64))
    assert table.update_priorities(keys, np.abs(priorities) if number_kind(dtype) != "b" else priorities) == 2
    assert table.get(keys).priorities.tolist() == wanted.tolist() or number_kind(dtype) == "i"
    assert sr.sequence_priority(priorities[None]).shape == (1,)


def test_rules_that_read_numbers_take_them_or_name_the_column(client: sr.Client, dtype: np.dtype[Any]) -> None:
    signature = {"x": sr.ArraySpec((), dtype), "n": sr.ArraySpec((), "int64")}
    is_plain = is_real(dtype) and not is_added(dtype) and dtype.itemsize <= 8 and dtype != np.float16
    for rule in (
        sr.Pattern({"n": ("n", -1)}, conditions=[sr.when.data["x"] >= 0]),
        sr.Sequence(1, priority="x"),
        sr.Sequence(1, priority=sr.td_priority("x")),
    ):
        if not is_plain:
            with pytest.raises(sr.SignatureMismatch, match=f"column 'x' is {dtype.name}"):
                sr.Table("rules", signature, 10, item=rule)
            continue
        table = create(client, "rules", signature, item=rule)
        with table.writer() as writer:
            writer.append({"x": values(dtype, 2)[1], "n": 1})
        assert len(table) == 1
        client.drop_table("rules")


def test_targets_of_them_are_computed_or_refused(client: sr.Client, dtype: np.dtype[Any]) -> None:
    signature = {"observation": sr.ArraySpec((), "float32"), "reward": sr.ArraySpec((2,), dtype)}
    table = create(client, "targets", signature, item=sr.NStep(2))
    with table.writer() as writer:
        for _ in range(3):
            writer.append({"observation": np.float32(0), "reward": values(dtype, 2)})
        writer.end_episode({"observation": np.float32(0)})
    batch = table.sample(8)
    client.drop_table("targets")
    if not is_real(dtype):
        with pytest.raises(ValueError, match=f"'reward' has dtype {dtype}; expected real numbers"):
            sr.n_step_targets(batch, 0.5)
        return
    found = sr.n_step_targets(batch, 0.5)
    wanted = values(dtype, 2).astype(np.float64) * np.where(found.num_steps == 2, 1.5, 1.0)[:, None]
    np.testing.assert_array_equal(found.returns, wanted)


def test_tensors_of_them_go_out_and_in_again(table: TableHandle, dtype: np.dtype[Any]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from shmreplay.clients.torch import TorchBatch

    batch = table.sample(4)
    if not hasattr(torch, dtype.name):
        with pytest.raises(TypeError, match=f"torch has no tensors of dtype {dtype.name}"):
            TorchBatch.of(batch)
        return
    tensors = TorchBatch.of(batch).data
    table.reset()
    table.insert({name: tensor[0] for name, tensor in tensors.items()})
    table.insert_batch(tensors)
    table.extend(tensors)
    assert len(table) == 9
    assert same(table.sample(16).data, dtype)
    assert table.update_data(table.keys()[:1], {"mutable": tensors["mutable"][:1, None]}) == 1
    if is_real(dtype):
        assert table.update_priorities(table.keys()[:4], tensors["x"]) == 4


def test_trees_of_weights_are_published_and_pulled(client: sr.Client, dtype: np.dtype[Any]) -> None:
    tree = {"a": values(dtype, 3), "b": values(dtype, 2, 2)}
    client.create_tables([params.table("weights", tree)])
    weights = params.Params(client.table("weights"))
    weights.publish(tree)
    with weights.latest() as found:
        assert all((found.data[name] == tree[name]).all() for name in tree)
        into = {name: np.empty_like(array) for name, array in tree.items()}
        found.copy_to(into)
        assert all((into[name] == tree[name]).all() for name in tree)
    client.drop_table("weights")


def test_steps_of_any_structure_keep_them(client: sr.Client, dtype: np.dtype[Any], capsys: Any) -> None:
    table = create(client, "free", None)
    table.insert({"x": values(dtype, 2)[1], "v": values(dtype, 3)})
    (found,) = table.sample(1).data
    assert found["v"].dtype == dtype
    assert (found["v"] == values(dtype, 3)).all()
    assert found["x"] == values(dtype, 2)[1]
    key = str(table.keys()[0])
    assert said(capsys, "inspect", "free", key)
    strict(said(capsys, "inspect", "free", key, "--json"))
    client.drop_table("free")


@pytest.mark.parametrize("refused", REFUSED, ids=str)
def test_dtypes_of_no_plain_numbers_are_refused_with_advice(refused: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be a column|foreign byte order"):
        sr.ArraySpec((), refused)
