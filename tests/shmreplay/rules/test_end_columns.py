"""Columns that say where episodes end: by the last part of their name, plain flags, and a warning for look-alikes."""

import warnings

import pytest

import shmreplay as sr
from shmreplay.columns.signature import Signature
from shmreplay.rules.end_columns import check_end_columns, is_end_column, warn_if_ends_are_unknown

FLAG = sr.ArraySpec((), "bool")


def test_the_last_part_of_the_name_decides() -> None:
    signature = Signature.from_tree(
        {"terminated": FLAG, "step": {"truncated": FLAG}, "terminated_at": FLAG, "done": FLAG}, "t"
    )
    assert {leaf.path for leaf in signature.leaves if is_end_column(leaf)} == {"terminated", "step/truncated"}


@pytest.mark.parametrize("spec", [sr.ArraySpec((1,), "bool"), sr.ArraySpec((), "uint8")])
def test_one_that_is_no_plain_flag_is_refused(spec: sr.ArraySpec) -> None:
    check_end_columns(Signature.from_tree({"step": {"truncated": FLAG}}, "t"), "table 't'")
    with pytest.raises(ValueError, match=r"table 't', column 'step/truncated': .* declare ArraySpec\(\(\), 'bool'\)"):
        check_end_columns(Signature.from_tree({"step": {"truncated": spec}}, "t"), "table 't'")


def test_a_window_over_steps_that_are_done_warns_once_and_at_the_caller() -> None:
    signature = Signature.from_tree({"x": sr.ArraySpec((), "int64"), "done": FLAG, "dones": FLAG}, "t")
    with pytest.warns(UserWarning, match="column 'done' ends no episode") as caught:
        warn_if_ends_are_unknown(signature, sr.Sequence(3), "table 't'", stacklevel=1)
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
        warn_if_ends_are_unknown(Signature.from_tree(columns, "t"), rule, "table 't'", stacklevel=1)
