"""The benchmarks run and report what they say they do. No test here looks at a time."""

import json
import math
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

GATHERS = ("C++ gather of the rows from one", "C++ gather of the rows from 5")
# workload -> what is measured beside ours
LIMITS = {
    "extend": {"robust lock", "memcpy into warm", "memcpy into fresh"},
    "insert_batch_uniform": {"robust lock", "memcpy into warm", "memcpy into fresh"},
    "insert_batch_prioritised": {"robust lock", "memcpy into warm", "memcpy into fresh"},
    "insert_step_uniform": {"robust lock", "memcpy into warm", "memcpy into fresh", "dict of five"},
    "insert_step_prioritised": {"robust lock", "memcpy into warm", "memcpy into fresh", "dict of five"},
    "sample_uniform": {
        "robust lock",
        "memcpy into warm",
        "take(out=) of the rows from one",
        "take(out=) of the rows from 5",
        *GATHERS,
    },
    "sample_prioritised": {
        "robust lock",
        "memcpy into warm",
        "take(out=) of the rows from one",
        "take(out=) of the rows from 5",
        *GATHERS,
        "bare sum tree",
    },
    "sample_options": {"fresh arrays", "columns=", "replacement=False"},
    "update_priorities": {"robust lock", "bare sum tree"},
    "vector_append": {"robust lock", "memcpy into warm", "memcpy into fresh"},
}
ITEMS_PER_CALL = {"extend": 8192, "insert_step_uniform": 1, "insert_step_prioritised": 1, "vector_append": 64}
FACTS = {"processor", "cores", "kernel", "python", "numpy", "shmreplay", "commit", "measured on", "load after"}


def run_bench(*arguments: str, module: str = "bench") -> "subprocess.CompletedProcess[str]":
    """Runs `python -m bench` as its README says: from the root, which PYTHONSAFEPATH would hide."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The JSON of a tiny run of every workload."""
    file = tmp_path_factory.mktemp("bench") / "report.json"
    done = run_bench("--smoke", "--note", "a tiny run", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    for answer in json.loads(file.read_text())["answers"]:
        assert answer["question"] in done.stdout
    return file


@pytest.fixture(scope="module")
def report(report_file: pathlib.Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(report_file.read_text())
    return content


def test_a_report_says_what_was_run_and_on_what(report: dict[str, Any]) -> None:
    assert report["format"] == 1
    assert report["command"].startswith("python -m bench --smoke")
    assert report["note"] == "a tiny run"
    assert report["size"]["name"] == "smoke"
    assert report["machine"].keys() >= FACTS
    assert all(isinstance(fact, str) and fact for fact in report["machine"].values())


def test_every_workload_answers_with_ours_first_and_its_limits_beside_it(report: dict[str, Any]) -> None:
    assert {answer["name"] for answer in report["answers"]} == LIMITS.keys()
    for answer in report["answers"]:
        ours, *limits = answer["rows"]
        assert ours["kind"] == "ours"
        # One compares calls of ours with each other.
        assert {limit["kind"] for limit in limits} == {"ours" if answer["name"] == "sample_options" else "limit"}
        missing = {part for part in LIMITS[answer["name"]] if not any(part in limit["name"] for limit in limits)}
        assert not missing
        assert answer["items_per_call"] == ITEMS_PER_CALL.get(answer["name"], 256)


def test_every_row_has_a_positive_time_a_repeat(report: dict[str, Any]) -> None:
    repeats = report["size"]["repeats"]
    assert repeats >= 5
    for answer in report["answers"]:
        ours, *limits = answer["rows"]
        assert len(ours["ns_per_call"]["all"]) == repeats * len(limits)
        for row in answer["rows"]:
            assert row["calls"] >= 1
            assert_summarises(row["ns_per_call"])
        assert all(len(limit["ns_per_call"]["all"]) == repeats for limit in limits)


def test_ratios_are_those_of_the_pairs(report: dict[str, Any]) -> None:
    for answer in report["answers"]:
        ours, *limits = answer["rows"]
        assert ours["ours_over_this"] is None
        for at, limit in enumerate(limits):
            assert_summarises(limit["ours_over_this"])
            pairs = zip(ours["ns_per_call"]["all"][at :: len(limits)], limit["ns_per_call"]["all"], strict=True)
            assert limit["ours_over_this"]["all"] == pytest.approx([mine / its for mine, its in pairs], rel=1e-3)


def assert_summarises(summary: dict[str, Any]) -> None:
    values = sorted(summary["all"])
    assert all(math.isfinite(value) and value > 0 for value in values)
    assert (summary["min"], summary["max"]) == (values[0], values[-1])
    assert summary["median"] in values or values[0] < summary["median"] < values[-1]


def test_the_page_of_results_has_a_table_of_every_row(report_file: pathlib.Path, report: dict[str, Any]) -> None:
    page = run_bench(str(report_file), module="bench.results")
    assert page.returncode == 0, page.stderr
    for answer in report["answers"]:
        (section,) = re.findall(rf"^## {answer['name']}$(.*?)(?=^## |\Z)", page.stdout, re.MULTILINE | re.DOTALL)
        assert answer["question"] in section
        for row in answer["rows"]:
            assert f"{row['name']} | " in section


def test_an_unknown_workload_is_refused_with_the_names_there_are() -> None:
    done = run_bench("--only", "nonsense")
    assert done.returncode == 2
    assert "no workload's name has nonsense in it; there are extend, insert_batch_uniform, " in done.stderr
