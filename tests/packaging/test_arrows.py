"""Which part may know which: core <- _core <- shmreplay <- {daemon, clients} <- {bench, tests}."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.support.repository import ROOT

FOLDERS = {"shmreplay": "shmreplay", "daemon": "shmreplay.daemon", "clients": "shmreplay.clients", "bench": "bench"}

# folder -> modules that its files may not import, with all below them
FORBIDDEN = {
    "shmreplay": ("shmreplay.daemon", "shmreplay.clients", "bench", "tests"),
    "daemon": ("shmreplay.clients", "bench", "tests"),
    "clients": ("shmreplay.daemon", "bench", "tests"),
    "bench": ("tests",),
}
# Names that exist in the repository and not in an installation.
UNINSTALLED = ("daemon", "clients", "core")
# The public names are gathered in one file, so that one alone looks down the arrows.
MAY_IMPORT_CLIENTS = ROOT / "shmreplay" / "__init__.py"


def imported_modules(source: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, module) for each import; `from a import b` gives a.b, which covers a module b as well as a name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def is_within(module: str, ancestor: str) -> bool:
    return module == ancestor or module.startswith(ancestor + ".")


def wrong_imports(folder: str, path: pathlib.Path) -> list[str]:
    """'file:line imports module' for each import of one file that goes against the arrows."""
    package = ".".join([FOLDERS[folder], *path.relative_to(ROOT / folder).parts[:-1]])
    forbidden = FORBIDDEN[folder] + UNINSTALLED
    if path == MAY_IMPORT_CLIENTS:
        forbidden = tuple(module for module in forbidden if module != "shmreplay.clients")
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for line, module in imported_modules(path.read_text(encoding="utf-8"), package)
        if any(is_within(module, ancestor) for ancestor in forbidden)
    ]


@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_imports_follow_the_arrows(folder: str) -> None:
    found = [line for path in sorted((ROOT / folder).rglob("*.py")) for line in wrong_imports(folder, path)]
    assert found == []


def test_the_check_itself_sees_every_form_of_import() -> None:
    source = """
import shmreplay.clients.tables.table as t
from shmreplay.clients.tables import table
from shmreplay import clients
def late():
    from ..clients.table import TableHandle
"""
    seen = [module for _, module in imported_modules(source, "shmreplay.daemon")]
    assert len(seen) == 4
    assert all(is_within(module, "shmreplay.clients") for module in seen)


def included_headers(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """(file:line, header) for each #include below a folder."""
    for path in sorted([*folder.rglob("*.cc"), *folder.rglob("*.h")]):
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if match := re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', text):
                yield f"{path.relative_to(ROOT)}:{line}", match[1]


def test_the_core_knows_no_python() -> None:
    headers = list(included_headers(ROOT / "shmreplay" / "core"))
    assert headers, "no #include found below shmreplay/core: this test looks in the wrong place"
    python = re.compile(r"(^|/)(Python\.h|nanobind|pybind11|numpy)(/|$)")
    assert [(where, header) for where, header in headers if python.search(header)] == []


def test_the_core_includes_nothing_of_ours_from_outside() -> None:
    folder = ROOT / "shmreplay" / "core"
    local = {path.name for path in folder.glob("*.h")}
    outside = [
        (where, header)
        for where, header in included_headers(folder)
        if header.startswith(("..", "shmreplay/", "tests/")) and header.removeprefix("shmreplay/core/") not in local
    ]
    assert outside == []
