"""What README.md says works: its Python runs as written, its commands too, its names exist; and the examples run."""

import builtins
import os
import pathlib
import re
import runpy
import shlex
import subprocess
import sys
from functools import reduce

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import WAIT_S

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
TOML_BLOCKS = re.findall(r"^```toml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^    (shmreplay .*)$", README, re.MULTILINE)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LEARN = {"apex_dqn.py", "impala_queue.py", "r2d2.py", "sac_vector.py"}  # minutes; tests/examples runs them in small


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
    assert len(COMMANDS) >= 1
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_its_python_runs_as_written(block: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "readme.py"
    file.write_text(block, encoding="utf-8")
    assert run_python(str(file)) == ""


def episodes(rng: np.random.Generator) -> list[tuple[np.ndarray, list[float]]]:
    """Observations, the final one included, and rewards of the example's episodes."""
    found = []
    for length in (20, 2):
        drawn = [(rng.normal(size=4).astype("float32"), rng.normal()) for _ in range(length)]
        found.append((np.array([*(o for o, _ in drawn), rng.normal(size=4).astype("float32")]), [r for _, r in drawn]))
    return found


def test_its_example_computes_the_targets_of_its_episodes(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "readme.py"
    file.write_text(BLOCKS[0], encoding="utf-8")
    seen = runpy.run_path(str(file))
    expected = {}
    for observations, rewards in episodes(np.random.default_rng(0)):
        for t in range(len(rewards)):
            last = min(t + 3, len(rewards))
            value = sum(0.99**k * reward for k, reward in enumerate(rewards[t:last]))
            expected[observations[t].tobytes()] = (value, last - t, observations[last])
    data = seen["batch"].data
    for i in range(64):
        value, num_steps, next_observation = expected[data["observation"][i].tobytes()]
        np.testing.assert_allclose(seen["returns"][i], value, rtol=1e-5)
        assert seen["num_steps"][i] == num_steps
        np.testing.assert_allclose(seen["discounts"][i], 0.99**num_steps)  # cut off, not terminated
        np.testing.assert_array_equal(data["next_observation"][i], next_observation)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command: str, tmp_path: pathlib.Path) -> None:
    [declared] = TOML_BLOCKS
    (tmp_path / "tables.toml").write_text(declared, encoding="utf-8")
    assert "total" in run_python("-m", "shmreplay.clients.cli.main", *shlex.split(command)[1:], cwd=tmp_path)


def test_the_names_it_mentions_exist() -> None:
    names = set(re.findall(r"\bsr\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)", README))
    assert {"Server", "connect", "Table.queue", "selectors.Prioritized"} <= names
    for name in sorted(names):
        assert reduce(getattr, name.split("."), sr) is not None, name


def test_the_errors_selectors_and_limiters_it_mentions_exist() -> None:
    names = set(re.findall(r"`([A-Z][A-Za-z]+)(?:\([a-z_, .]*\))?`", README)) - set(dir(builtins))
    assert {"Fifo", "MinSize", "SignatureMismatch", "Client"} <= names
    for name in sorted(names):
        assert any(hasattr(module, name) for module in (sr, sr.selectors, sr.rate_limiters)), name


def test_its_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) >= 5
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_make_targets_it_mentions_exist() -> None:
    targets = set(re.findall(r"\bmake ([a-z]+)\b", " ".join(re.findall(r"`[^`]*`|^    .*$", README, re.MULTILINE))))
    assert {"demo", "test"} <= targets
    known = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets <= set(known)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_run(example: pathlib.Path) -> None:
    assert "python examples/" + example.name in example.read_text(encoding="utf-8")
    assert os.fspath(example.relative_to(ROOT)) in README
    if example.name not in LEARN:
        assert run_python(str(example))
