"""What README.md says works: its Python runs as written, its names exist; and the examples run."""

import os
import pathlib
import re
import subprocess
import sys
from functools import reduce

import pytest

import shmreplay as sr
from tests.support.repository import ROOT
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# These take minutes; tests/examples runs them in small.
LEARN = {"apex_dqn.py", "impala_queue.py", "r2d2.py", "sac_vector.py", "sb3_prioritized_dqn.py"}


def run_python(*arguments: str, cwd: str | pathlib.Path = "/") -> str:
    """Runs Python, where a warning is an error, outside of the repository; returns what it printed."""
    command = [sys.executable, "-W", "error", *arguments]
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=2 * WAIT_S)
    # The library logs there what a call has been waiting for; a child that failed would leave its traceback.
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


def test_there_is_something_to_test() -> None:
    assert len(BLOCKS) >= 1
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_its_python_runs_as_written(block: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "readme.py"
    file.write_text(block, encoding="utf-8")
    assert run_python(str(file)) == ""


def test_the_names_it_mentions_exist() -> None:
    names = set(re.findall(r"\bsr\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)", README))
    assert {"Server", "connect", "Table", "selectors.Prioritized"} <= names
    for name in sorted(names):
        assert reduce(getattr, name.split("."), sr) is not None, name


def test_it_is_short_and_its_first_example_is_too() -> None:
    assert len(README.splitlines()) <= 130
    assert len([line for line in BLOCKS[0].splitlines() if line]) <= 12


def test_its_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)[)#]", README)
    assert len(links) >= 5
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_make_targets_it_mentions_exist() -> None:
    targets = set(re.findall(r"\bmake ([a-z]+)\b", " ".join(re.findall(r"`[^`]*`|^    .*$", README, re.MULTILINE))))
    assert {"demo", "test"} <= targets
    known = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets <= set(known)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
@pytest.mark.one_quick
def test_the_examples_run(example: pathlib.Path) -> None:
    assert "python examples/" + example.name in example.read_text(encoding="utf-8")
    assert os.fspath(example.relative_to(ROOT)) in README
    if example.name not in LEARN:
        assert run_python(str(example))
