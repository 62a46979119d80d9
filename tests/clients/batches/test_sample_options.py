"""SampleOptions: one checked value for all readers, and one signature that tools can read."""

import inspect
from typing import Any

import numpy as np
import pytest

from shmreplay.clients.batches.sample_options import DrawnFrom, SampleOptions
from shmreplay.clients.mixes.mix import Mix
from shmreplay.clients.shards.sharded_table import ShardedTable
from shmreplay.clients.tables.table import TableHandle
from shmreplay.columns.signature import Signature
from shmreplay.columns.specs import ArraySpec
from shmreplay.selectors import Fifo, Uniform

SIGNATURE = Signature.from_tree({"x": ArraySpec((), "int64")}, "t")
TABLE = DrawnFrom("table 't'", Uniform(), SIGNATURE)


def defaults(function: Any) -> dict[str, Any]:
    return {
        name: option.default
        for name, option in inspect.signature(function).parameters.items()
        if option.default is not option.empty
    }


def test_every_reader_shows_the_options_in_its_signature() -> None:
    checked = defaults(SampleOptions.of)
    of_a_call = {"timeout_s": None, "out": None}
    assert defaults(TableHandle.sample) == defaults(ShardedTable.sample) == {**checked, **of_a_call}
    of_a_mix = {name: value for name, value in checked.items() if name not in ("at_least", "ragged")}
    assert defaults(Mix.sample) == {**of_a_mix, **of_a_call}


def test_a_checked_value_does_not_change() -> None:
    options = SampleOptions.of(TABLE, 8)
    with pytest.raises(AttributeError):
        options.n = 9  # type: ignore[misc]
    assert (options.n, options.at_least, options.count, options.is_arranged, options.asked) == (8, 8, True, False, [])


def test_it_tells_which_options_were_asked_for() -> None:
    options = SampleOptions.of(TABLE, 8, at_least=2, columns=["x"], count=False)
    assert options.asked == ["at_least", "columns", "count"]
    assert options.is_arranged
    assert SampleOptions.of(TABLE, 8, at_least=8, num_threads=1).asked == []


@pytest.mark.parametrize(
    ("table", "options", "error", "text"),
    [
        (TABLE, {"n": 0}, ValueError, "n is 0; expected 1 to"),
        (TABLE, {"n": True}, TypeError, "n is True; expected an integer"),
        (TABLE, {"at_least": 5}, ValueError, "at_least is 5; expected 1 to 4"),
        (TABLE, {"num_threads": 65}, ValueError, "num_threads is 65; expected 1 to 64"),
        (TABLE, {"ragged": "list"}, ValueError, "ragged is 'list'"),
        (TABLE, {"part": (0, 2)}, ValueError, "but replacement=True"),
        (TABLE, {"stratified": True, "replacement": False}, ValueError, "exclude each other"),
        (TABLE._replace(sampler=Fifo()), {"stratified": True}, ValueError, "expected a random one"),
        (TABLE._replace(num_shards=3), {"replacement": False}, ValueError, "replacement=False, but it has 3 shards"),
    ],
)
def test_wrong_options_are_refused_by_name(
    table: DrawnFrom, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"table 't': .*{text}"):
        SampleOptions.of(table, **{"n": 4, **options})


def test_stratified_draws_take_one_number_from_each_equal_part() -> None:
    uniforms = np.array([0.5, 0.0, 0.25, 1 - 2**-53])
    assert SampleOptions.of(TABLE, 4).spread(uniforms) is uniforms
    spread = SampleOptions.of(TABLE, 4, stratified=True).spread(uniforms)
    assert (np.floor(spread * 4) == [0, 1, 2, 3]).all()
    assert spread.max() < 1
