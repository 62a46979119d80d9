"""The benchmarks run, and report what they say. No test here checks a time."""

import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.support.repository import ROOT

GATHERS = ("C++ gather of the rows from one", "C++ gather of the rows from 5")
TAKES = ("take(out=) of the rows from one", "take(out=) of the rows from 5")
COPIES = ("robust lock", "memcpy into warm", "memcpy into fresh")
RING = "peer: ring"
QUEUE = "peer: queue"
# how a workload's name begins -> labels of what is measured beside ours
BESIDE: dict[str, tuple[str, ...]] = {
    "append_item": ("robust lock", "dict of five"),
    "attach": (),
    "attached": (),
    "beside": ("a table each",),
    "blocked": (),
    "bytes_copied": (),
    "extend": COPIES,
    "growth_sample": ("among 10,000", "bare sum tree"),
    "growth_update": ("among 10,000", "bare sum tree"),
    "heap_arrays": ("none in the heap",),
    "huge_pages": ("small pages",),
    "insert_batch_prioritised": (*COPIES, "bare slice copy"),
    "insert_batch_uniform": (*COPIES, "bare slice copy", RING),
    "insert_dicts": ("stacked by its caller", "dict of five"),
    "insert_step_prioritised": (*COPIES, "dict of five", "empty nanobind call"),
    "insert_step_uniform": (*COPIES, "dict of five", "empty nanobind call", RING, QUEUE),
    "mixed": (),
    "no_ends": ("empty nanobind call",),
    "open_rows": ("append of whole steps",),
    "recorder": ("environments' own step",),
    "sample_options": ("fresh arrays", "columns=", "replacement=False"),
    "sample_prioritised": (*TAKES, *GATHERS, "robust lock", "bare sum tree"),
    "sample_uniform": (*TAKES, *GATHERS, "robust lock", RING, "malloc's defaults"),
    "sb3": (),
    "selections": ("item of the newest steps",),
    "sequences": ("raw",),
    "shards": ("shards=2", "shards=1"),
    "torch_batches": ("limit: sample(), numpy",),
    "update_priorities": ("robust lock", "bare sum tree"),
    "values": ("float64 reward", "strided observation"),
    "vector_append": (*COPIES, RING),
    "woken": ("wake from core to core", "wake on the same core", QUEUE),
    "writers": (RING, QUEUE),
}
LEFT_OUT = {
    "insert_step_prioritised_400B": {"queue has no priorities", "ring has no priorities"},
    "mixed": {"ring has no priorities"},
}
ITEMS_PER_CALL = {"extend": 8192, "insert_batch_uniform_64_400B": 64, "insert_step_uniform_4kB": 1, "append_item": 1}
# every workload is in one of them; each is run by itself, so that no test takes long
PARTS = (
    ("insert_batch",),
    ("insert_step", "insert_dicts", "append_item"),
    ("W2", "W7"),
    ("W3", "W4", "W6"),
    ("W5", "W8", "extend", "heap_arrays"),
    ("W9", "W10", "W14", "W15", "W16"),
    ("W11", "W12", "W13"),
    ("W17", "W18", "W19"),
    ("W20",),
)
FACTS = {"processor", "cores", "kernel", "python", "numpy", "shmreplay", "commit", "load after"}


def run_bench(*arguments: str, module: str = "bench") -> "subprocess.CompletedProcess[str]":
    """Runs `python -m bench` as its README says."""
    return run_python("-m", module, *arguments)


def run_python(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """From the root, which PYTHONSAFEPATH would hide."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(
    scope="module", params=[PARTS[0], *(pytest.param(part, marks=pytest.mark.long) for part in PARTS[1:])], ids=" ".join
)
def report_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The JSON of a tiny run of some workloads."""
    file = tmp_path_factory.mktemp("bench") / "report.json"
    only = [argument for part in request.param for argument in ("--only", part)]
    done = run_bench("--smoke", *only, "--peers", "ring", "queue", "--note", "a tiny run", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    for answer in json.loads(file.read_text())["answers"]:
        assert answer["question"] in done.stdout
    return file


@pytest.fixture(scope="module")
def report(report_file: pathlib.Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(report_file.read_text())
    return content


@pytest.mark.slow
@pytest.mark.long
def test_a_report_says_what_was_run_and_on_what(report: dict[str, Any]) -> None:
    assert report["format"] == 2
    assert report["command"].startswith("python -m bench --smoke")
    assert report["note"] == "a tiny run"
    assert report["size"]["name"] == "smoke"
    assert report["machine"].keys() >= FACTS
    assert all(isinstance(fact, str) and fact for fact in report["machine"].values())
    assert report["peers"].keys() == {"ring", "queue"}


@pytest.mark.long
def test_every_workload_answers_with_ours_first_and_what_is_measured_beside_it(report: dict[str, Any]) -> None:
    assert report["answers"]
    for answer in report["answers"]:
        ours, *others = answer["rows"]
        assert ours["kind"] == "ours"
        labels = [f"{row['kind']}: {row['name']}" for row in others]
        beside = BESIDE[max((start for start in BESIDE if answer["name"].startswith(start)), key=len)]
        assert not {part for part in beside if not any(part in label for label in labels)}, answer["name"]
        assert set(answer["left_out"]) >= LEFT_OUT.get(answer["name"], set())
        assert answer["items_per_call"] == ITEMS_PER_CALL.get(answer["name"], answer["items_per_call"])


@pytest.mark.long
def test_every_row_has_a_number_a_repeat_of_every_metric(report: dict[str, Any]) -> None:
    for answer in report["answers"]:
        ours, *others = answer["rows"]
        calls = ours["calls"] > 0
        repeats = report["size"]["repeats" if calls else "rounds"]
        assert not calls or repeats >= 5
        for metric in answer["metrics"]:
            own = ours["values"][metric["name"]]
            assert len(own["all"]) == (repeats * len(others) if calls else repeats)
            for row in answer["rows"]:
                assert (row["calls"] > 0) == calls
                assert_summarises(row["values"][metric["name"]])
            assert all(len(row["values"][metric["name"]]["all"]) == repeats for row in others)


@pytest.mark.long
def test_ratios_are_those_of_the_pairs(report: dict[str, Any]) -> None:
    for answer in report["answers"]:
        ours, *others = answer["rows"]
        assert ours["ours_over_this"] == {}
        for (at, row), metric in itertools.product(enumerate(others), [m["name"] for m in answer["metrics"]]):
            ratios, its, own = (
                row["ours_over_this"][metric],
                row["values"][metric]["all"],
                ours["values"][metric]["all"],
            )
            pairs = zip(own[at :: len(others)] if ours["calls"] else own, its, strict=True)
            assert ratios["all"] == pytest.approx([a / b if b else math.inf if a else 1.0 for a, b in pairs], rel=1e-3)


def assert_summarises(summary: dict[str, Any]) -> None:
    values = sorted(summary["all"])
    assert all(math.isfinite(value) and value >= 0 for value in values)
    assert (summary["min"], summary["max"]) == (values[0], values[-1])
    assert summary["median"] in values or values[0] < summary["median"] < values[-1]


@pytest.mark.long
def test_the_page_of_results_has_a_table_of_every_row(report_file: pathlib.Path, report: dict[str, Any]) -> None:
    page = run_bench(str(report_file), module="bench.results")
    assert page.returncode == 0, page.stderr
    for answer in report["answers"]:
        (section,) = re.findall(rf"^## {answer['name']}$(.*?)(?=^## |\Z)", page.stdout, re.MULTILINE | re.DOTALL)
        assert answer["question"] in section
        for row in answer["rows"]:
            assert f"{row['name']} | " in section
    assert "\n## On a GPU\n" in page.stdout
    for line in ("## Where we lose", "| insert per step, 400 B | ≤ 1.2 µs a call | "):
        assert line in page.stdout


def test_an_unknown_workload_is_refused_with_the_names_there_are() -> None:
    done = run_bench("--only", "nonsense")
    assert done.returncode == 2
    assert "no workload's name has nonsense in it; there are append_item, attach_100MB, " in done.stderr
    names = done.stderr.partition("there are ")[2].strip().split(", ")
    assert not [name for name in names if not any(name.startswith(start) for start in BESIDE)]
    assert not [start for start in BESIDE if not any(name.startswith(start) for name in names)]


def test_numbers_choose_workloads_and_all_of_them_are_run_here() -> None:
    code = """
import sys
from bench.workloads import all_workloads
print([w.name for w in all_workloads() if not any(w.is_asked_for(part.split()) for part in sys.argv[1:])])
print([w.name for w in all_workloads() if w.is_asked_for(["W7"])])
"""
    done = run_python("-c", code, *(" ".join(part) for part in PARTS))
    assert done.stdout.splitlines() == ["[]", "['update_priorities_100k', 'update_priorities_1M']"], done.stderr


def test_a_peer_that_ends_is_gone_with_its_last_words() -> None:
    code = """
from bench.peers.catalogue import PEERS
from bench.peers.process import PeerProcess
from bench.peers.task import Task
(ring,) = [peer for peer in PEERS if peer.name == "ring"]
PeerProcess(ring, Task("sample", -5), {})
"""
    done = run_python("-c", code)
    said = "Gone: ring ended in the middle of sample (build/peers/ring.log): OverflowError: "
    assert said in done.stderr


def test_a_peer_that_ends_half_way_is_left_out_and_the_others_are_measured() -> None:
    code = """
from bench.contender import Absent, Contender, Gone, Trial
from bench.measure import measure
from bench.size import SMOKE
from bench.workload import Workload

def ending(after):
    left = [after]
    def run(argument):
        left[0] -= 1
        if left[0] < 0:
            raise Gone("a peer ended")
        return 10_000 * argument if isinstance(argument, int) else {"a call": 1.0}
    return run

for kind in (Contender, Trial):
    for after in (0, 6 if kind is Contender else 0):
        ours, stays = kind("call", "ours", ending(10**6)), kind("stays", "peer", ending(10**6))
        rows = [ours, kind("ends", "peer", ending(after)), stays, Absent("another one is not installed")]
        answer = measure(Workload("w", "?", None), SMOKE, rows)
        print([row.name for row in answer.rows], answer.left_out, len(answer.rows[1].ours_over_this["a call"].all))
"""
    done = run_python("-c", code)
    left = "['call', 'stays'] ('another one is not installed', 'a peer ended') "
    assert done.stdout.splitlines() == [f"{left}{repeats}" for repeats in (5, 5, 1, 1)], done.stderr


@pytest.mark.long
def test_a_run_adds_to_a_report_of_its_commit_and_size(tmp_path: pathlib.Path) -> None:
    file = str(tmp_path / "report.json")
    for only, more in (("update_priorities_100k", ()), ("extend", ("--add",)), ("extend", ("--add",))):
        done = run_bench("--smoke", "--only", only, "--peers", "--json", file, *more)
        assert done.returncode == 0, done.stderr
    content = json.loads(pathlib.Path(file).read_text())
    assert [a["name"] for a in content["answers"]] == ["update_priorities_100k", "extend"]
    commands = content["command"].split("; ")
    assert [command.rpartition("--only=")[2] for command in commands] == [
        "update_priorities_100k --peers",
        "extend --peers",
    ]
    refused = run_bench("--quick", "--only", "extend", "--json", file, "--add")
    assert "the report is of size smoke, this run of quick; expected one size: begin anew" in refused.stderr
