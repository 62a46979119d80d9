"""Columns that say where episodes end: those at the top or those declared, plain flags, a warning for look-alikes."""

import warnings

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.columns.signature import Signature
from shmreplay.rules.end_columns import check_end_columns, end_leaves, warn_if_ends_are_unknown
from tests.support.tables import TableMaker

FLAG = sr.ArraySpec((), "bool")


NESTED = {"terminated": FLAG, "step": {"truncated": FLAG}, "terminated_at": FLAG, "done": FLAG}


@pytest.mark.parametrize(
    ("ends", "found"),
    [(None, {"terminated"}), ((), set()), (("step/truncated",), {"step/truncated"})],
)
def test_columns_at_the_top_end_episodes_or_those_declared(ends: tuple[str, ...] | None, found: set[str]) -> None:
    signature = Signature.from_tree(NESTED, "t")
    assert {leaf.path for leaf in end_leaves(signature, ends)} == found


@pytest.mark.parametrize("spec", [sr.ArraySpec((1,), "bool"), sr.ArraySpec((), "uint8")])
def test_one_that_is_no_plain_flag_is_refused_where_it_ends_episodes(spec: sr.ArraySpec) -> None:
    signature = Signature.from_tree({"step": {"truncated": spec}}, "t")
    check_end_columns(signature, None, "table 't'")
    with pytest.raises(ValueError, match=r"table 't', column 'step/truncated': .* declare ArraySpec\(\(\), 'bool'\)"):
        check_end_columns(signature, ("step/truncated",), "table 't'")


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (("terminated", "step/terminated"), "expected one 'terminated'"),
        (("step/done",), "'step/done'; expected paths that end in"),
        (("step",), "'step'; expected paths that end in"),
        (("other/terminated",), "'other/terminated', which is no column; the signature has terminated, step/truncated"),
    ],
)
def test_ends_that_are_no_ends_are_refused(ends: tuple[str, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        sr.Table("t", NESTED, 10, ends=ends)
    with pytest.raises(TypeError, match="expected paths of columns"):
        sr.Table("t", NESTED, 10, ends="step/truncated")  # type: ignore[arg-type]


def test_a_declaration_of_ends_goes_over_the_wire() -> None:
    table = sr.Table("t", NESTED, 10, ends=["step/truncated"])  # type: ignore[arg-type]
    assert table.ends == ("step/truncated",)
    assert sr.Table.from_wire(table.to_wire()) == table
    assert sr.Table.from_wire(sr.Table("t", NESTED, 10).to_wire()).ends is None


def test_agents_end_one_by_one_and_the_episode_goes_on(make_table: TableMaker) -> None:
    agent = {"observation": sr.ArraySpec((), "float32"), "terminated": FLAG}
    with pytest.warns(UserWarning, match=r"column 'a/terminated' ends no episode.*ends=\('a/terminated',\)"):
        table = make_table(signature={"a": agent, "b": agent}, item=sr.Sequence(2, at_end="skip"))
    with table.writer() as writer:
        for t in range(5):
            writer.append({name: {"observation": t, "terminated": name == "a" and t >= 2} for name in "ab"})
    assert len(table) == 4


def test_an_end_is_told_with_the_column_that_says_it(make_table: TableMaker) -> None:
    table = make_table(
        signature={"step": {"x": sr.ArraySpec((), "int64"), "terminated": FLAG}}, ends=("step/terminated",)
    )
    with table.writer() as writer:
        writer.append({"step": {"x": 0, "terminated": True}})
        with pytest.raises(sr.ShmReplayError, match="Column 'step/terminated' says so"):
            writer.append({"step": {"x": 1, "terminated": False}})
    with pytest.raises(ValueError, match=r"row 0 was terminated or truncated, .* as its column 'step/terminated' says"):
        table.extend({"step": {"x": np.zeros(1, "int64"), "terminated": np.ones(1, "bool")}}, [False])


def test_a_window_over_steps_that_are_done_warns_once_and_at_the_caller() -> None:
    signature = Signature.from_tree({"x": sr.ArraySpec((), "int64"), "done": FLAG, "dones": FLAG}, "t")
    with pytest.warns(UserWarning, match="column 'done' ends no episode") as caught:
        warn_if_ends_are_unknown(signature, None, sr.Sequence(3), "table 't'", stacklevel=1)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"done": FLAG}, None),
        ({"done": FLAG, "terminated": FLAG}, sr.Sequence(3)),
        ({"done": FLAG}, sr.Sequence(3, across_episodes=True)),
        ({"is_done": FLAG}, sr.Sequence(3)),
    ],
)
def test_nothing_is_said_where_no_window_runs_over_ends(
    columns: dict[str, sr.ArraySpec], rule: sr.Window | None
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_ends_are_unknown(Signature.from_tree(columns, "t"), None, rule, "table 't'", stacklevel=1)
