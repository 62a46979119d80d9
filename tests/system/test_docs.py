"""What the pages in docs/ show works: each block of Python runs as written, names exist, links lead to files."""

import pathlib
import re
from functools import reduce

import pytest

import shmreplay as sr
from tests.system.test_readme import ROOT, run_python

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
BLOCKS = [
    pytest.param(block, id=f"{name}-{i}")
    for name, page in PAGES.items()
    for i, block in enumerate(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
]


def test_there_are_pages_with_python() -> None:
    assert {"windows.md", "recipes/apex.md", "recipes/sac_vector.md"} <= PAGES.keys()
    assert len(BLOCKS) >= 10


@pytest.mark.parametrize("block", BLOCKS)
def test_their_python_runs_as_written(block: str, tmp_path: pathlib.Path) -> None:
    for library in re.findall(r"^import (torch|jax)$", block, re.MULTILINE):
        pytest.importorskip(library)
    file = tmp_path / "page.py"
    file.write_text(block, encoding="utf-8")
    assert run_python(str(file)) == ""


@pytest.mark.parametrize("name", PAGES)
def test_the_names_they_mention_exist_and_links_lead_to_files(name: str) -> None:
    for mentioned in set(re.findall(r"\bsr\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)", PAGES[name])):
        assert reduce(getattr, mentioned.split("."), sr) is not None, mentioned
    for link in re.findall(r"\]\(([^)#]+)\)", PAGES[name]):
        assert (DOCS / name).parent.joinpath(link).exists(), link
