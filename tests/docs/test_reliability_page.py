"""docs/reliability.md names tests: each of them exists."""

import re

from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w./*]+)`", PAGE)))


def test_the_test_files_it_names_exist() -> None:
    names = {path.name: path for path in (ROOT / "tests").rglob("*") if path.suffix in (".py", ".cc")}
    files = [name for name in NAMED if name.endswith((".py", ".cc")) and "*" not in name]
    assert len(files) >= 10
    for name in files:
        assert (ROOT / name).exists() or name in names, name
    for pattern in (name for name in NAMED if "*" in name):
        assert list(ROOT.glob(pattern)), pattern
    for folder in (name for name in NAMED if re.fullmatch(r"tests/\w+", name)):
        assert (ROOT / folder).is_dir(), folder


def test_the_tests_it_names_exist() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tests = [name for name in NAMED if name.startswith("test_") and "." not in name]
    assert len(tests) >= 5
    for name in tests:
        assert f"def {name}(" in sources, name
