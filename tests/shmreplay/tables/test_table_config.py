"""Tables declared in TOML: what a file says, and what is said of a file that cannot be."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest

import shmreplay as sr
from shmreplay.tables.table_config import TablesRefused, read_tables, tables_of

SIGNATURE = {
    "observation": sr.ArraySpec((84, 84), "uint8"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32", cast="same_kind"),
}
SHARED = """
[arenas.steps]
max_streams = 16_384
max_sessions = 300
chunk_steps = 8
[arenas.steps.columns]
observation = { dtype = "uint8", shape = [84, 84] }
action = "int64"
reward = { dtype = "float32", cast = "same_kind" }

[tables.replay]
arena = "steps"
max_size = 1_000_000
sampler = { kind = "Prioritized", priority_exponent = 0.6 }
remover = "Fifo"
rate_limiter = { kind = "SampleToInsertRatio", samples_per_insert = 8, min_size_to_sample = 1000, error_buffer = 1e3 }
item = { kind = "NStep", n = 3, stack = { observation = 4 }, priority = { td = "reward", eta = 0.8 } }
capacity_steps = 1_100_000

[tables.on_policy]
kind = "queue"
arena = "steps"
max_size = 100
max_streams = 7
item = { kind = "Unroll", T = 20, bootstrap = ["observation", "reward"] }

[metrics]
socket = "another part of the daemon's own"
"""


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    (path / "tables.toml").write_text(text, encoding="utf-8")
    return path / "tables.toml"


def test_a_file_says_what_python_would(tmp_path: pathlib.Path) -> None:
    shared: dict[str, Any] = {"arena": "steps", "max_sessions": 300, "chunk_steps": 8}
    assert read_tables(write(tmp_path, SHARED)) == [
        sr.Table(
            "replay",
            SIGNATURE,
            1_000_000,
            sampler=sr.selectors.Prioritized(0.6),
            rate_limiter=sr.rate_limiters.SampleToInsertRatio(8, 1000, 1000),
            item=sr.NStep(3, {"observation": 4}, priority=sr.td_priority("reward", 0.8)),
            capacity_steps=1_100_000,
            max_streams=16_384,
            **shared,
        ),
        sr.Table.queue(
            "on_policy", SIGNATURE, 100, item=sr.Unroll(20, ("observation", "reward")), max_streams=7, **shared
        ),
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('sampler = "Uniform"', {"sampler": sr.selectors.Uniform()}),
        ('remover = { kind = "MinHeap" }', {"remover": sr.selectors.MinHeap()}),
        ('rate_limiter = { kind = "MinSize", min_size_to_sample = 5 }', {"rate_limiter": sr.rate_limiters.MinSize(5)}),
        (
            'rate_limiter = { kind = "RateLimiter", samples_per_insert = 1.5, min_size_to_sample = 1, min_diff = -inf, '
            "max_diff = 8 }",
            {"rate_limiter": sr.rate_limiters.RateLimiter(1.5, 1, float("-inf"), 8)},
        ),
        (
            'rate_limiter = { kind = "SampleToInsertRatio", samples_per_insert = 1, min_size_to_sample = 1, '
            "error_buffer = [-10, 10] }",
            {"rate_limiter": sr.rate_limiters.SampleToInsertRatio(1, 1, (-10, 10))},
        ),
        ('item = "Transition"', {"item": sr.Transition()}),
        ('item = { kind = "Transition", next = ["observation", "action"] }',
         {"item": sr.Transition(next=("observation", "action"))}),
        ('item = { kind = "Sequence", length = 80, period = 40, burn_in = 40, priority = 2.0 }',
         {"item": sr.Sequence(80, 40, 40, priority=2.0)}),
        ('item = "Episode"\nitem_steps = 200', {"item": sr.Episode(), "item_steps": 200}),
        (
            'item = { kind = "Window", columns = { observation = [-3, 1], a = ["action", 0], b = ["action", 0, 2] }, '
            'at_start = "repeat", at_end = "shorten", priority = "reward" }',
            {
                "item": sr.Window(
                    {"observation": (-3, 1), "a": ("action", 0), "b": ("action", 0, 2)},
                    "repeat",
                    "shorten",
                    priority="reward",
                )
            },
        ),
        ("item_steps = 80\nmax_times_sampled = 2\non_full = \"error\"",
         {"item_steps": 80, "max_times_sampled": 2, "on_full": "error"}),
    ],
)  # fmt: skip
def test_every_part_has_a_form(tmp_path: pathlib.Path, text: str, part: dict[str, Any]) -> None:
    columns = '[tables.t.columns]\nobservation = "float32"\naction = "int64"\nreward = "float32"\n'
    path = write(tmp_path, f"[tables.t]\nmax_size = 10\n{text}\n{columns}")
    signature = {name: sr.ArraySpec((), dtype) for name, dtype in
                 (("observation", "float32"), ("action", "int64"), ("reward", "float32"))}  # fmt: skip
    assert read_tables(path) == [sr.Table("t", signature, 10, **part)]


def test_columns_nest_and_keep_their_order() -> None:
    columns = {
        "observation": {"camera": {"dtype": "uint8", "shape": [3]}, "dtype": {"shape": [], "dtype": "bool"}},
        "action": "int64",
    }
    (table,) = tables_of({"tables": {"t": {"max_size": 1, "columns": columns}}}, "x")
    assert [leaf.path for leaf in table.sig.leaves] == ["observation/camera", "observation/dtype", "action"]
    assert [leaf.spec.shape for leaf in table.sig.leaves] == [(3,), (), ()]


def test_columns_have_every_option_of_python_and_any_sizes(tmp_path: pathlib.Path) -> None:
    text = """
[tables.t]
max_size = 10
[tables.t.columns]
image = { dtype = "uint8", shape = [84, 84], compression = "lz4", mean_bytes = 700 }
points = { dtype = "float32", shape = ["any", 3] }
note = { dtype = "int32", optional = true }
state = { dtype = "float32", shape = [512], mutable = true }
goal = { dtype = "float32", shape = [3], per = "item" }
"""
    columns = {
        "image": sr.ArraySpec((84, 84), "uint8", compression="lz4", mean_bytes=700),
        "points": sr.ArraySpec((None, 3), "float32"),
        "note": sr.ArraySpec((), "int32", optional=True),
        "state": sr.ArraySpec((512,), "float32", mutable=True),
        "goal": sr.ArraySpec((3,), "float32", per="item"),
    }
    assert read_tables(write(tmp_path, text)) == [sr.Table("t", columns, 10)]


def test_columns_of_any_kind_are_no_signature() -> None:
    document = {"tables": {"t": {"max_size": 10, "columns": "any", "mean_bytes": 300}}}
    assert tables_of(document, "f.toml") == [sr.Table("t", None, 10, mean_bytes=300)]


def test_an_arena_s_settings_reach_the_table_of_its_name() -> None:
    document = {"arenas": {"t": {"max_streams": 3, "columns": {"x": "bool"}}}, "tables": {"t": {"max_size": 1}}}
    assert tables_of(document, "x") == [sr.Table("t", {"x": sr.ArraySpec((), "bool")}, 1, max_streams=3)]


ONE = {"max_size": 10, "columns": {"x": "float32"}}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "f.toml: declares no tables; expected a section such as [tables.replay] with max_size"),
        ({"tables": 3}, "f.toml: tables is 3; expected sections such as [tables.replay]"),
        ({"tables": {"t": 3}}, "f.toml: tables.t is 3; expected keys and their values, or a section"),
        ({"tables": {"t": {**ONE, "max_szie": 3}}}, "f.toml: tables.t.max_szie is not known; did you mean 'max_size'?"),
        (
            {"tables": {"t": {**ONE, "zzz": 3}}},
            "f.toml: tables.t.zzz is not known; it has kind, max_size, sampler, rem",
        ),
        (
            {"tables": {"t": {"columns": {"x": "bool"}}}},
            "f.toml: tables.t.max_size is missing; expected the number of it",
        ),
        ({"tables": {"t": {**ONE, "max_size": 0}}}, "f.toml: tables.t: max_size is 0; expected an integer in 1.."),
        (
            {"tables": {"t": {**ONE, "max_size": "10"}}},
            "f.toml: tables.t: max_size is '10'; expected an integer in 1..",
        ),
        (
            {"tables": {"t": {"max_size": 1}}},
            "f.toml: tables.t.columns is missing; expected a section, such as",
        ),
        ({"tables": {"t": {**ONE, "columns": {}}}}, "f.toml: tables.t.columns is {}; expected a section, such"),
        (
            {"tables": {"t": {**ONE, "kind": "heap"}}},
            "tables.t.kind is 'heap'; expected one of 'table', 'queue', 'stack'",
        ),
        (
            {"tables": {"t": {**ONE, "columns": {"x": 3}}}},
            "f.toml: tables.t.columns.x is 3; expected a dtype's name, or a section",
        ),
        (
            {"tables": {"t": {**ONE, "columns": {"x": "flota32"}}}},
            "f.toml: tables.t.columns.x: dtype 'flota32' is not known to numpy",
        ),
        (
            {"tables": {"t": {**ONE, "columns": {"a": {"x": {"dtype": "float32", "shape": [-1]}}}}}},
            "f.toml: tables.t.columns.a.x: shape is (-1,); expected sizes >= 0",
        ),
        (
            {"tables": {"t": {**ONE, "columns": {"x": {"dtype": "float32", "cats": "no"}}}}},
            "f.toml: tables.t.columns.x.cats is not known; did you mean 'cast'?",
        ),
        (
            {"tables": {"t": {**ONE, "columns": {"x": {"dtype": "float32", "cast": "any"}}}}},
            "f.toml: tables.t.columns.x: cast is 'any'; expected one of 'safe', 'same_kind', 'no'",
        ),
        (
            {"tables": {"t": {**ONE, "sampler": "Prioritised"}}},
            "f.toml: tables.t.sampler.kind is 'Prioritised'; expected one of 'Fifo', 'Lifo', 'Uniform', 'Prioritized'",
        ),
        (
            {"tables": {"t": {**ONE, "sampler": "Prioritized"}}},
            "f.toml: tables.t.sampler.priority_exponent is missing; Prioritized needs priority_exponent",
        ),
        (
            {"tables": {"t": {**ONE, "sampler": {"kind": "Prioritized", "priority_exponent": -1}}}},
            "f.toml: tables.t.sampler: priority_exponent is -1.0; expected a finite number >= 0",
        ),
        (
            {"tables": {"t": {**ONE, "remover": {"kind": "Fifo", "size": 1}}}},
            "f.toml: tables.t.remover.size is not known; Fifo has no keys",
        ),
        (
            {"tables": {"t": {**ONE, "remover": 1}}},
            "f.toml: tables.t.remover is 1; expected the name of a kind, or a sec",
        ),
        (
            {"tables": {"t": {**ONE, "rate_limiter": {"kind": "MinSize", "min_size": 1}}}},
            "f.toml: tables.t.rate_limiter.min_size is not known; MinSize has min_size_to_sample",
        ),
        (
            {"tables": {"t": {**ONE, "item": {"kind": "NStep", "n": 0}}}},
            "f.toml: tables.t.item: n is 0; expected an integer in 1..",
        ),
        (
            {"tables": {"t": {**ONE, "item": {"kind": "Sequence", "length": 4, "at_end": "drop"}}}},
            "f.toml: tables.t.item: window: at_end is 'drop'; expected one of 'skip', 'shorten', 'pad', 'shift'",
        ),
        (
            {"tables": {"t": {**ONE, "item": "Transition"}}},
            "f.toml: tables.t: output 'next_observation' wants column 'observation'; the signature has x",
        ),
        (
            {"tables": {"t": {**ONE, "sampler": {"kind": []}}}},
            "f.toml: tables.t.sampler.kind is []; expected one of 'Fifo', 'Lifo', 'Uniform'",
        ),
        (
            {"tables": {"t": {**ONE, "kind": "queue", "sampler": "Fifo"}}},
            "f.toml: tables.t: Table.queue sets sampler it",
        ),
        (
            {"arenas": {"a": {}}, "tables": {"t": ONE}},
            "f.toml: arenas.a: no table is in it; expected one with arena = 'a'",
        ),
        (
            {"tables": {"t": {**ONE, "arena": {"a": 1}}}},
            "f.toml: tables.t.arena is {'a': 1}; expected a name",
        ),
        (
            {"arenas": {"t": {"max_size": 1}}, "tables": {"t": ONE}},
            "f.toml: arenas.t.max_size is not known; it has col",
        ),
        (
            {"tables": {"t": {**ONE, "arena": "a"}, "u": {**ONE, "arena": "a", "columns": {"x": "float64"}}}},
            "f.toml: tables.t: arena 'a': tables 't' and 'u' share their steps and so need one signature: column 'x'",
        ),
        ({"tables": {"a.b": ONE}}, "f.toml: tables.a.b: table: name is 'a.b'; expected 1 to 64 letters, digits, '_'"),
    ],
)
def test_what_cannot_be_is_named_with_its_file_and_key(document: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        tables_of(document, "f.toml")


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        (
            {"tables": {"t": {**ONE, "sampler": {"kind": "Prioritised"}, "item": {"kind": "NStp"}}}},
            ["tables.t.sampler.kind is 'Prioritised'", "tables.t.item.kind is 'NStp'"],
        ),
        (
            {"tables": {"t": {"max_sise": 9, "zzz": 1, "columns": {"x": "it64", "y": {"dtype": "it8", "cats": 1}}}}},
            [
                "tables.t.max_sise is not known; did you mean 'max_size'?",
                "tables.t.zzz is not known",
                "tables.t.columns.x: dtype 'it64'",
                "tables.t.columns.y.cats is not known; did you mean 'cast'?",
                "tables.t.columns.y: dtype 'it8'",
                "tables.t.max_size is missing",
            ],
        ),
        (
            {
                "arenas": {"a": {"max_streams": 0, "columns": {"x": "it64"}}},
                "tables": {
                    "t": {"arena": "a", "max_size": "9"},
                    "u": {"kind": "heap", "max_size": 0, "columns": {"x": "flota32"}},
                    "v": 3,
                },
            },
            [
                "arenas.a: max_streams is 0",
                "arenas.a.columns.x: dtype 'it64'",
                "tables.t: max_size is '9'",
                "tables.u: max_size is 0",
                "tables.u.columns.x: dtype 'flota32'",
                "tables.u.kind is 'heap'",
                "tables.v is 3",
            ],
        ),
        (
            {"arenas": {"a": {"columns": {"x": "bool"}}, "b": 3}, "tables": {"t": {**ONE, "on_full": "x"}, "u": ONE}},
            ["arenas.b is 3", "tables.t: on_full is 'x'"],
        ),
        (
            {"arenas": {"a": {"columns": {"x": "bool"}}}, "tables": {"t": ONE, "u": {**ONE, "rate_limiter": {
                "kind": "SampleToInsertRatio", "min_size": 1}}}},
            [
                "tables.u.rate_limiter.min_size is not known",
                "tables.u.rate_limiter.samples_per_insert is missing",
                "tables.u.rate_limiter.min_size_to_sample is missing",
                "tables.u.rate_limiter.error_buffer is missing",
            ],
        ),
    ],
)  # fmt: skip
def test_all_that_cannot_be_is_said_once_each(document: dict[str, Any], texts: list[str]) -> None:
    with pytest.raises(TablesRefused) as raised:
        tables_of(document, "f.toml")
    found = raised.value.problems
    assert [text for text, problem in zip(texts, found, strict=True) if not problem.startswith(f"f.toml: {text}")] == []
    assert str(raised.value).splitlines() == found


@pytest.mark.parametrize(
    ("arenas", "text"),
    [
        ({"steps": {"columns": {"x": "bool"}}, "b": {}}, "there is no such arena; the file has 'steps', 'b', or give "),
        ({}, "there is no such arena; expected a section [arenas.nope], or give the table columns of its own"),
    ],
)
def test_an_arena_that_is_not_there_is_named_with_those_that_are(arenas: dict[str, Any], text: str) -> None:
    with pytest.raises(TablesRefused) as raised:
        tables_of({"arenas": arenas, "tables": {"t": {"max_size": 1, "arena": "nope"}}}, "f.toml")
    (problem,) = raised.value.problems
    assert problem.startswith(f"f.toml: tables.t.arena is 'nope': {text}")


def test_what_is_no_toml_is_named_with_its_line(tmp_path: pathlib.Path) -> None:
    for text, place in (
        (b"[tables.t]\nmax_size = \n", 2),
        (b"[tables.t]\nmax_size = 1\nmax_size = 2", 3),
        (b"[tables.t]\nmax_size = [\n1,\n", 3),
        (b"[tables.t]\n\n# \xff", 3),
        (b"\xff", 1),
    ):
        path = write(tmp_path, "")
        path.write_bytes(text)
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))}:{place}: not TOML: [^()]*$"):
            read_tables(path)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_tables(tmp_path / "none.toml")
