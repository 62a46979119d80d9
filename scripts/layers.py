"""Checks every include and import against the layers of the code: which folder may use which.

usage: layers.py [--root FOLDER] [--write]

Without --write: prints each arrow that runs up and each circle between files. Exits with 1 if there is one, or if the
picture in ARCHITECTURE.md is not that of the code. With --write: puts the picture there.

A node is a file; in C++, a header and its source are one node. An arrow is an include or an import, also one inside a
function or only for types. `AREAS` is the order: a file may use its own folder and those before it in the list.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

# Lowest first. A name with an ending is one file; any other is a folder with all below it.
AREAS: Mapping[str, tuple[str, ...]] = {
    "shmreplay/core": ("base", "arena", "trees", "chunks", "sessions", "items", "write", "read", "checkpoint"),
    "shmreplay": (
        "binding",
        "_core.cc",
        "_core.pyi",
        "version.py",
        "errors.py",
        "base",
        "selectors.py",
        "rate_limiters.py",
        "columns",
        "rules",
        "tables",
        "estimates.py",
        "segments",
        "checkpoints",
        "figures",
        "protocol.py",
    ),
    "clients": (
        "link",
        "ranks.py",
        "batches",
        "handles",
        "writers",
        "samplers",
        "tables",
        "shards",
        "client.py",
        "server.py",
        "mixes",
        "../shmreplay/__init__.py",  # the public names, gathered; what follows uses them as a user does
        "cuda",
        "params",
        "torch",
        "jax",
        "gymnasium",
        "transitions",
        "sb3",
        "minari",
        "cleanrl",
        "demo",
        "cli/terminal",
        "cli/figures",
        "cli/items",
        "cli/machine",
        "cli/commands",
        "cli/top",
        "cli/main.py",
    ),
    "daemon": (
        "loop",
        "config",
        "arenas",
        "checkpoints",
        "control",
        "figures",
        "web",
        "process",
        "main.py",
        "__main__.py",
    ),
}
# Neither knows the other, though both come after the package in the list.
APART = ("clients", "daemon")
PACKAGES = {"shmreplay": "shmreplay", "clients": "shmreplay.clients", "daemon": "shmreplay.daemon"}
PICTURE = re.compile(r"(<!-- layers begin[^\n]*-->\n).*?(<!-- layers end -->)", re.DOTALL)


def floors() -> list[str]:
    """Paths of all floors, lowest first."""
    return [_joined(area, floor) for area, names in AREAS.items() for floor in names]


def _joined(area: str, floor: str) -> str:
    return floor.removeprefix("../") if floor.startswith("../") else f"{area}/{floor}"


def floor_of(path: str) -> str | None:
    """The floor that a file belongs to; None if it is on none, such as an `__init__.py` with only a docstring."""
    found = [floor for floor in floors() if path == floor or path.startswith(floor + "/")]
    return max(found, key=len, default=None)


@dataclasses.dataclass(frozen=True)
class Arrow:
    """One include or import."""

    user: str  # path of the file, without its ending in C++
    used: str
    line: str  # file:line, as printed


def node_of(path: str) -> str:
    """A header and its source are one node."""
    return re.sub(r"\.(h|cc)$", "", path) if path.endswith((".h", ".cc")) and path != "shmreplay/_core.cc" else path


# --- includes -------------------------------------------------------------------------------------------------------


def includes(root: pathlib.Path) -> Iterator[Arrow]:
    """Arrows between C++ files. A name is looked for beside the file, then where the build's -iquote options point."""
    for folder in ("shmreplay/core", "shmreplay/binding"):
        for path in sorted([*(root / folder).rglob("*.h"), *(root / folder).rglob("*.cc")]):
            yield from _includes_of(root, path)
    if (root / "shmreplay/_core.cc").exists():
        yield from _includes_of(root, root / "shmreplay/_core.cc")


def _includes_of(root: pathlib.Path, path: pathlib.Path) -> Iterator[Arrow]:
    user = path.relative_to(root).as_posix()
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not (match := re.match(r'\s*#\s*include\s*"([^"]+)"', text)):
            continue
        for place in (path.parent, root / "shmreplay/core", root / "shmreplay", root):
            if (place / match[1]).is_file():
                used = (place / match[1]).resolve().relative_to(root.resolve()).as_posix()
                if node_of(used) != node_of(user):
                    yield Arrow(node_of(user), node_of(used), f"{user}:{number}")
                break


# --- imports --------------------------------------------------------------------------------------------------------


def modules(root: pathlib.Path) -> dict[str, str]:
    """Dotted name of every module -> its path."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join([package, *parts])] = path.relative_to(root).as_posix()
    found["shmreplay._core"] = "shmreplay/_core.pyi"
    return found


def imports(root: pathlib.Path) -> Iterator[Arrow]:
    """Arrows between Python files."""
    known = modules(root)
    for user in sorted(set(known.values()) - {"shmreplay/_core.pyi"}):
        for node in ast.walk(ast.parse((root / user).read_text(encoding="utf-8"))):
            for name in _imported(node, known):
                if known[name] != user:
                    yield Arrow(user, known[name], f"{user}:{getattr(node, 'lineno', 0)}")


def _imported(node: ast.AST, known: Mapping[str, str]) -> Iterator[str]:
    """Names of our modules that one statement imports. Relative imports are refused by the linter."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if name in known or node.module in known:
                yield name if name in known else node.module


# --- what is wrong --------------------------------------------------------------------------------------------------


def upward(arrows: Iterable[Arrow]) -> list[str]:
    """A line for each arrow that runs up, or from the clients to the daemon or back."""
    order = {floor: height for height, floor in enumerate(floors())}
    found = []
    for arrow in arrows:
        user, used = floor_of(arrow.user), floor_of(arrow.used)
        if user is None or used is None:
            found.append(f"{arrow.line} uses {arrow.used}: one of both is on no floor; add its folder to AREAS")
        elif order[used] > order[user]:
            found.append(f"{arrow.line} uses {arrow.used}: {used} is above {user}")
        elif {user.split("/")[0], used.split("/")[0]} == set(APART):
            found.append(f"{arrow.line} uses {arrow.used}: clients and daemon know each other by protocol.py alone")
    return found


def circles(arrows: Iterable[Arrow]) -> list[list[str]]:
    """Files that use each other, directly or through others: a sorted list for each circle."""
    after: dict[str, set[str]] = {}
    for arrow in arrows:
        after.setdefault(arrow.user, set()).add(arrow.used)
    reach = {node: _reachable(node, after) for node in after}
    found = {tuple(sorted({node} | {n for n in reach[node] if node in reach.get(n, ())})) for node in after}
    return [list(circle) for circle in sorted(found) if len(circle) > 1]


def _reachable(start: str, after: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(after.get(start, ()))
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left.extend(after.get(node, ()))
    return seen


# --- the picture ----------------------------------------------------------------------------------------------------


def picture(arrows: Iterable[Arrow]) -> str:
    """The folders of each area as a Mermaid chart. Arrows run from the user to the used; those that others imply are
    left out. Needs a tree whose arrows all run down.
    """
    pairs = {(floor_of(a.user), floor_of(a.used)) for a in arrows}
    charts = []
    for area, names in AREAS.items():
        own = [_joined(area, name) for name in names]
        after = {o: {used for user, used in pairs if user == o and used in own and used != o} for o in own}
        lines = [f"    {_label(user, area)} --> {_label(used, area)}" for user, used in _needed(own, after)]
        charts.append("\n".join([f"`{area}/`", "", "```mermaid", "flowchart TD", *lines, "```"]))
    return "\n\n".join(charts)


def _needed(own: list[str], after: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """The arrows that other arrows do not imply, from the highest floor down."""
    for user in reversed(own):
        for used in reversed(own):
            others = after[user] - {used}
            if used in after[user] and not any(used in _reachable(other, after) for other in others):
                yield user, used


def _label(floor: str, area: str) -> str:
    """A node of a chart; `__init__` would be read as emphasis, and dots and slashes as syntax."""
    name = "public names" if floor == "shmreplay/__init__.py" else floor.removeprefix(area + "/")
    return f'{re.sub(r"[^a-z]", "_", name)}["{name}"]'


def redrawn(text: str, arrows: Iterable[Arrow]) -> str:
    """The page with the picture of these arrows between its marks."""
    if not PICTURE.search(text):
        raise ValueError("ARCHITECTURE.md: no marks '<!-- layers begin -->' and '<!-- layers end -->' for the picture")
    return PICTURE.sub(lambda match: f"{match[1]}\n{picture(arrows)}\n\n{match[2]}", text)


def main() -> int:
    """Checks or writes. Returns the exit code."""
    parser = argparse.ArgumentParser(description="hold every include and import against the order of the layers")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--write", action="store_true", help="put the picture into ARCHITECTURE.md")
    options = parser.parse_args()
    arrows = [*includes(options.root), *imports(options.root)]
    faults = upward(arrows) + ["a circle: " + ", ".join(circle) for circle in circles(arrows)]
    print("".join(f"{fault}\n" for fault in dict.fromkeys(faults)), end="")
    page = options.root / "ARCHITECTURE.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if text and not faults and redrawn(text, arrows) != text:
        if options.write:
            page.write_text(redrawn(text, arrows), encoding="utf-8")
        else:
            faults.append("stale")
            print("ARCHITECTURE.md: its picture of the layers is not that of the code; run: make layers")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
