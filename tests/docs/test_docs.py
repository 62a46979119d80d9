"""What the pages in docs/ show works: their Python runs as written, names exist, links lead to files."""

import builtins
import pathlib
import re
import runpy
import shlex
from functools import reduce

import numpy as np
import pytest

import shmreplay as sr
from tests.docs.test_readme import run_python
from tests.support.repository import ROOT

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
SOURCES = ("shmreplay", "daemon", "clients", "bench", "tests", "scripts")
TOGETHER = {"migrating-from-reverb.md"}  # pages whose blocks are parts of one program


def programs(name: str) -> list[str]:
    """The Python of a page."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGES[name], re.MULTILINE | re.DOTALL)
    return ["\n".join(blocks)] if name in TOGETHER else blocks


def marks_of(number: int, block: str) -> list[pytest.MarkDecorator]:
    """`long` but for the first block of a page, and where a large library is imported."""
    is_large = (
        re.search(r"^(import|from) (torch|jax|gymnasium|stable_baselines3|minari)", block, re.MULTILINE) is not None
    )
    return [pytest.mark.long] if number > 0 or is_large else []


BLOCKS = [
    pytest.param(block, id=f"{name}-{i}", marks=marks_of(i, block))
    for name in PAGES
    for i, block in enumerate(programs(name))
]


def test_there_are_pages_with_python() -> None:
    assert {"windows.md", "recipes/apex.md", "recipes/sac_vector.md"} <= PAGES.keys()
    assert len(BLOCKS) >= 10


@pytest.mark.parametrize("block", BLOCKS)
def test_their_python_runs_as_written(block: str, tmp_path: pathlib.Path) -> None:
    for library in re.findall(r"^import (torch|jax)$", block, re.MULTILINE):
        pytest.importorskip(library)
    if "shmreplay.clients.minari" in block:
        pytest.importorskip("minari", reason="minari is not installed")
    if "shmreplay.clients.sb3" in block:
        pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    file = tmp_path / "page.py"
    file.write_text(block, encoding="utf-8")
    assert run_python(str(file)) == ""


@pytest.mark.parametrize("name", PAGES)
def test_the_names_they_mention_exist_and_links_lead_to_files(name: str) -> None:
    for mentioned in set(re.findall(r"\bsr\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)", PAGES[name])):
        assert reduce(getattr, mentioned.split("."), sr) is not None, mentioned
    for link in re.findall(r"\]\(([^)#]+)[)#]", PAGES[name]):
        assert (DOCS / name).parent.joinpath(link).exists(), link


def anchors(page: str) -> set[str]:
    """What its headings are called in links."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_to_a_heading_find_it(name: str) -> None:
    for file, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", PAGES[name]):
        page = (DOCS / name).parent.joinpath(file).read_text(encoding="utf-8") if file else PAGES[name]
        assert anchor in anchors(page), f"{file}#{anchor}"


def episodes(rng: np.random.Generator) -> list[tuple[np.ndarray, list[float]]]:
    """Observations, the final one included, and rewards of the episodes in docs/writing.md."""
    found = []
    for length in (20, 2):
        drawn = [(rng.normal(size=4).astype("float32"), rng.normal()) for _ in range(length)]
        found.append((np.array([*(o for o, _ in drawn), rng.normal(size=4).astype("float32")]), [r for _, r in drawn]))
    return found


def test_the_example_of_writing_computes_the_targets_of_its_episodes(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "page.py"
    file.write_text(programs("writing.md")[0], encoding="utf-8")
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


@pytest.mark.parametrize("command", re.findall(r"^    (shmreplay .*)$", PAGES["memory.md"], re.MULTILINE))
def test_the_commands_of_memory_run(command: str, tmp_path: pathlib.Path) -> None:
    [declared] = re.findall(r"^```toml\n(.*?)^```", PAGES["memory.md"], re.MULTILINE | re.DOTALL)
    (tmp_path / "tables.toml").write_text(declared, encoding="utf-8")
    assert "total" in run_python("-m", "shmreplay.clients.cli.main", *shlex.split(command)[1:], cwd=tmp_path)


def test_the_errors_selectors_and_limiters_of_tables_exist() -> None:
    names = set(re.findall(r"`([A-Z][A-Za-z]+)(?:\([a-z_, .]*\))?`", PAGES["tables.md"])) - set(dir(builtins))
    assert {"Fifo", "MinSize", "SignatureMismatch", "SessionLost"} <= names
    for name in sorted(names):
        assert any(hasattr(module, name) for module in (sr, sr.selectors, sr.rate_limiters)), name


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "bench/README.md", "shmreplay/core/README.md"])
def test_the_files_that_the_maps_name_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    files = {str(path.relative_to(ROOT)) for folder in SOURCES for path in (ROOT / folder).rglob("*.*")}
    names = {pathlib.Path(file).name for file in files}
    mentioned = set(re.findall(r"`([\w./]+\.(?:h|cc|py|md|html))`", text))
    assert len(mentioned) >= 20
    places = (ROOT, (ROOT / page).parent, ROOT / "bench" / "workloads", ROOT / "shmreplay" / "core")
    for file in mentioned:
        assert any((place / file).exists() for place in places) or ("/" not in file and file in names), file
    for folder in re.findall(r"`((?:\w+/)+)`", text):
        assert any((place / folder).is_dir() for place in places), folder


def section(results: str, name: str) -> str:
    """What bench/RESULTS.md says of a question."""
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", results, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


def seconds(figure: str) -> float:
    """`616 ns (576 ns to 856 ns)` as seconds."""
    number, unit = figure.split()[:2]
    return float(number) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def figures_of(results: str, name: str, peer: str) -> list[str]:
    """Of the fastest row of a peer, or of ours: the cells behind its name, medians alone."""
    rows = [line.strip("| ").split(" | ") for line in section(results, name).splitlines() if line.startswith("| ")]
    own = [row for row in rows if row[0].startswith(f"peer: {peer} " if peer else "shmreplay ")]
    best = own[0] if "/s" in own[0][1] or not peer else min(own, key=lambda row: seconds(row[1]))
    return [cell.split(" (")[0] for cell in best[1:]]


def test_the_figures_beside_others_are_those_of_the_results() -> None:
    results = (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| `(\w+)`(.*?) \| ([^|]+) \| (.*) \|$", PAGES["comparison.md"], re.MULTILINE)
    assert len(rows) >= 11
    for name, what, ours, theirs in rows:
        column = 2 if "samples" in what else 0  # of the cells behind a row's name: a figure, and its ratio
        assert figures_of(results, name, "")[column] == ours
        for peer, ratio in zip(("cpprb", "reverb", "torchrl"), theirs.split("|"), strict=False):
            if shown := ratio.strip(" *"):
                assert figures_of(results, name, peer)[column + 1] == shown, (name, peer)
    quoted = re.findall(r"(\d[\d.]*) times \((\w+)\)", PAGES["comparison.md"])
    [shares] = re.findall(r"in (\S+) and (\S+) of the bytes", PAGES["comparison.md"])
    assert len(quoted) == 2
    for (ratio, scene), share in zip(quoted, shares, strict=True):
        found = figures_of(results, f"sequences_{scene}", "reverb")
        assert (found[1], found[5]) == (ratio, share)
    [woken] = re.findall(r"in (\S+ us), by Reverb in (\S+ us) \(`woken`\)", PAGES["comparison.md"])
    assert woken == (figures_of(results, "woken", "")[0], figures_of(results, "woken", "reverb")[0])


def test_the_figures_of_shards_are_those_of_the_results() -> None:
    results = (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    workloads = {
        "4 writers, inserts a second": ("shards_4", 0),
        "16 writers, inserts a second": ("shards_16", 0),
        "4 writers beside a learner, inserts a second": ("shards_mixed", 0),
        "that learner, samples a second": ("shards_mixed", 2),
    }
    rows = dict(re.findall(r"^\| ([^|]+ a second) \| (.*) \|$", PAGES["shards.md"], re.MULTILINE))
    assert rows.keys() == workloads.keys()
    for name, (workload, column) in workloads.items():
        for shards, shown in zip((1, 2, 4), rows[name].split(" | "), strict=True):
            [row] = re.findall(rf"^\| shmreplay shards={shards} \| (.*) \|$", section(results, workload), re.MULTILINE)
            assert row.split(" | ")[column].split(" (")[0] == shown.split(" (")[0], (name, shards)
