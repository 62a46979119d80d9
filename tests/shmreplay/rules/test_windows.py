"""Windows as they are written down: what is refused, what travels, what the core is told."""

import pickle
import re
from typing import Any

import msgpack
import pytest

import shmreplay as sr
from shmreplay.columns.signature import Signature
from shmreplay.rules.windows import REACH_STRETCH, Window

SIGNATURE = Signature.from_tree(
    {
        "observation": {"camera": sr.ArraySpec((2, 2), "uint8"), "joints": sr.ArraySpec((3,), "float32")},
        "action": sr.ArraySpec((), "int64"),
        "reward": sr.ArraySpec((), "float32"),
        "terminated": sr.ArraySpec((), "bool"),
        "td": sr.ArraySpec((), "float64"),
    },
    "replay",
)
WINDOWS: list[Window] = [
    sr.Transition(),
    sr.Transition(next=("observation", "action"), priority="td"),
    sr.NStep(3, {"observation": 4}, priority=2.5, table="replay"),
    sr.Sequence(80, period=40, burn_in=20, at_start="zeros", at_end="shift", priority=sr.td_priority("td", 0.7)),
    sr.Episode(),
    sr.Unroll(20),
    sr.Window({"x": ("observation", -3, 1), "y": ("action", 2), "reward": 0}, "short", "pad", 2, across_episodes=True),
]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Window({}), ValueError, "window: columns is empty; expected at least one output"),
        (lambda: Window([("a", 1)]), ValueError, "window: columns is empty; expected at least one output"),  # type: ignore[arg-type]
        (lambda: Window({1: 0}), TypeError, "window: the output 1 has no name; expected a str"),  # type: ignore[dict-item]
        (lambda: Window({"": 0}), TypeError, "window: the output '' has no name; expected a str"),
        (lambda: Window({"x": (2, 2)}), ValueError, "window: output 'x': steps 2 to 2 are an empty range"),
        (lambda: Window({"x": ("a", 3, 1)}), ValueError, "window: output 'x': steps 3 to 1 are an empty range"),
        (lambda: Window({"x": (0, 2**25)}), ValueError, "window: output 'x': steps 0 to 33554432 are too far away"),
        (lambda: Window({"x": True}), TypeError, "window: output 'x': True; expected an int, (first, end), ('column'"),
        (lambda: Window({"x": "a"}), TypeError, "window: output 'x': 'a'; expected an int, (first, end)"),  # type: ignore[dict-item]
        (lambda: Window({}, rest=(1, 1)), ValueError, "window: output 'rest': steps 1 to 1 are an empty range"),
        (lambda: Window({"x": 0}, "left"), ValueError, "window: at_start is 'left'; expected one of 'skip', 'short'"),  # type: ignore[arg-type]
        (lambda: Window({"x": 0}, at_end="cut"), ValueError, "window: at_end is 'cut'; expected one of 'skip', 'sh"),  # type: ignore[arg-type]
        (lambda: Window({"x": 0}, period=0), ValueError, "window: period is 0; expected an integer in 1.."),
        (lambda: Window({"x": 0}, period=1.5), TypeError, "window: period is 1.5; expected an integer"),  # type: ignore[arg-type]
        (lambda: Window({"x": 0}, burn_in=-1), ValueError, "window: burn_in is -1; expected an integer in 0.."),
        (lambda: Window({"x": 0}, table=3), TypeError, "window: table is 3; expected a table's name, or None"),  # type: ignore[arg-type]
        (lambda: sr.NStep(0), ValueError, "NStep: n is 0; expected an integer in 1.."),
        (lambda: sr.NStep(2, {"a": 0}), ValueError, "NStep, stack of 'a': frames is 0; expected an integer in 1.."),
        (lambda: sr.Sequence(0), ValueError, "Sequence: length is 0; expected an integer in 1.."),
        (lambda: sr.Unroll(0), ValueError, "Unroll: T is 0; expected an integer in 1.."),
        (lambda: sr.Episode(speed=1), TypeError, "Episode: speed= is not an option; expected one of period"),
        (lambda: sr.NStep(3, stack=4), TypeError, "NStep: stack is 4; expected frames by column, such as {'observ"),  # type: ignore[arg-type]
        (
            lambda: sr.NStep(3, at_end="pad"),
            TypeError,
            "NStep: at_end= is not an option; expected one of period, burn",
        ),
        (lambda: sr.Sequence(8, overlap=4), TypeError, "Sequence: overlap= is not an option; expected one of across"),
        (lambda: sr.Unroll(8, period=4), TypeError, "Unroll: period= is not an option; expected one of burn_in"),
    ],
)
def test_a_malformed_window_is_refused_with_its_name(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        make()


def test_an_unknown_column_is_refused_with_those_there_are() -> None:
    text = (
        "table 'replay': output 'x' wants column 'ghost'; the signature has observation/camera, observation/joints, "
        "action, reward, terminated, td"
    )
    with pytest.raises(sr.SignatureMismatch, match=re.escape(text)):
        Window({"x": ("ghost", 0)}).structure(SIGNATURE)
    with pytest.raises(sr.SignatureMismatch, match="output 'next_state' wants column 'state'"):
        sr.Transition(next=("state",)).native(SIGNATURE, 0, "table 'replay'")


def test_a_window_of_every_column_needs_columns_with_names() -> None:
    for tree in (sr.ArraySpec((), "int8"), [sr.ArraySpec((), "int8")]):
        with pytest.raises(sr.SignatureMismatch, match="windows name columns; its signature is no dict or named tuple"):
            sr.Sequence(3).native(Signature.from_tree(tree, "t"), 0, "t")


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_comes_back_from_the_wire_and_from_pickle(window: Window) -> None:
    wire = msgpack.unpackb(msgpack.packb(window.to_wire()))
    back = Window.from_wire(wire)
    assert back == window
    assert hash(back) == hash(window)
    assert back.native(SIGNATURE, 1, "w") == window.native(SIGNATURE, 1, "w")
    assert pickle.loads(pickle.dumps(window)) == window


def test_an_unroll_of_a_checkpoint_that_knew_nothing_of_chunks_is_the_same_item() -> None:
    wire = sr.Unroll(20).to_wire()
    assert wire.pop("is_unroll") is True
    old = Window.from_wire(wire)
    assert old == sr.Unroll(20)
    assert not old.is_unroll
    assert "is_unroll" not in sr.Sequence(20).to_wire()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"columns": {}}, "window: malformed"),
        ({"optional": None}, "window: malformed"),
        ({"columns": [["x"]]}, "window: malformed columns"),
        ({"columns": [["x", [1, 1]]]}, "output 'x': steps 1 to 1 are an empty range"),
        ({"at_end": "?"}, "at_end is '?'"),
    ],
)
def test_a_malformed_wire_form_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        Window.from_wire({**WINDOWS[0].to_wire(), **change})
    with pytest.raises(ValueError, match=r"window: malformed, expected a map with 'at_start'"):
        Window.from_wire([])


@pytest.mark.parametrize(
    ("window", "steps"),
    [
        (sr.Transition(), 2),
        (sr.NStep(1), 2),
        (sr.NStep(3), 4),
        (sr.NStep(3, {"observation": 4}), 7),
        (sr.Sequence(80), 80),
        (sr.Sequence(80, burn_in=40), 120),
        (sr.Unroll(20), 21),
        (sr.Episode(), 1),
        (Window({"action": -5}), 6),
        (Window({"action": 5}), 6),
    ],
)
def test_a_window_says_how_many_steps_a_writer_must_hold(window: Window, steps: int) -> None:
    assert window.num_steps(SIGNATURE) == steps


def test_a_transition_is_an_n_step_of_one() -> None:
    assert sr.Transition() == sr.NStep(1)


def test_outputs_keep_the_order_of_the_signature_and_others_come_behind() -> None:
    names = [part.name for part in sr.NStep(3, {"observation": 2}).parts(SIGNATURE)]
    assert names == ["observation", "action", "reward", "terminated", "td", "next_observation"]


def test_flags_that_a_signature_lacks_are_left_out() -> None:
    bare = Signature.from_tree({"observation": sr.ArraySpec((), "int64")}, "t")
    assert [part.name for part in sr.NStep(3).parts(bare)] == ["observation", "next_observation"]


def test_burn_in_goes_before_what_begins_at_the_reference_step() -> None:
    window = Window({"a": (0, 4), "b": (1, 4), "c": 0}, burn_in=3)
    parts = {part.name: (part.begin, part.end) for part in window.parts(SIGNATURE)}
    assert parts == {"a": (-3, 4), "b": (1, 4), "c": (0, 1)}


def test_only_renamed_outputs_that_reach_the_end_move_with_it() -> None:
    native = Window({"x": ("action", 1, 4), "y": ("action", 0, 2), "reward": (0, 4)}).native(SIGNATURE, 0, "w")
    assert [output[2] for output in native["outputs"]] == [True, False, False]


def test_a_window_across_episodes_says_so_to_the_core() -> None:
    assert Window({"action": 0}, across_episodes=True).native(SIGNATURE, 0, "w")["reach"] == REACH_STRETCH


def test_a_column_that_is_per_item_is_shown_without_steps_and_asks_for_none() -> None:
    columns = {
        "a": sr.ArraySpec((), "int64"),
        "goal": sr.ArraySpec((), "int64", per="item", optional=True),
        "mixed": {"b": sr.ArraySpec((), "int64"), "hint": sr.ArraySpec((), "int64", per="item", optional=True)},
    }
    signature = Signature.from_tree(columns, "t")
    window = Window({"a": (2, 4), "goal": (-9, 9), "mixed": (1, 3)})
    native = window.native(signature, 0, "w")
    assert native["outputs"] == [
        (0, False, False, [(2, 4, 1)]),
        (1, True, False, []),
        (2, False, False, [(1, 3, 1)]),
        (3, True, False, []),
    ]
    assert (native["lo"], native["hi"], window.num_steps(signature)) == (1, 4, 4)
    with pytest.raises(sr.SignatureMismatch, match="table 't': window shows only columns that are per item; expected"):
        Window({"goal": 0}).native(signature, 0, "w")
