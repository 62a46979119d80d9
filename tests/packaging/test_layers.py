"""scripts/layers.py: that the code keeps to its layers, and that the script sees every way of breaking them."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "layers.py"


def run_layers(root: pathlib.Path, *arguments: str) -> tuple[int, list[str]]:
    """The script's exit code and lines for the tree below `root`."""
    command = [sys.executable, str(SCRIPT), "--root", str(root), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stderr == ""
    return ran.returncode, ran.stdout.splitlines()


def write_tree(root: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_the_code_keeps_to_its_layers() -> None:
    assert run_layers(ROOT) == (0, [])


UPWARD = {
    "an include": {
        "shmreplay/core/base/word.h": '#include "items/check.h"\n',
        "shmreplay/core/items/check.h": "",
    },
    "an include of the binding": {
        "shmreplay/core/base/word.h": '#include "binding/gil.h"\n',
        "shmreplay/binding/gil.h": "",
    },
    "an import": {
        "clients/link/connection.py": "import shmreplay.clients.tables.table\n",
        "clients/tables/table.py": "",
    },
    "an import inside a function": {
        "clients/link/connection.py": "def f():\n    from shmreplay.clients.tables import table\n",
        "clients/tables/table.py": "",
    },
    "an import for types alone": {
        "shmreplay/base/checks.py": "if TYPE_CHECKING:\n    from shmreplay.tables.table import Table\n",
        "shmreplay/tables/table.py": "",
    },
    "the package in its own base": {
        "shmreplay/base/checks.py": "import shmreplay\n",
        "shmreplay/__init__.py": "",
    },
    "the clients in the daemon": {
        "daemon/loop/workers.py": "from shmreplay.clients.link.connection import Connection\n",
        "clients/link/connection.py": "",
    },
    "a file that is on no floor": {
        "clients/other/thing.py": "from shmreplay.errors import ShmReplayError\n",
        "shmreplay/errors.py": "",
    },
}


@pytest.mark.parametrize("files", UPWARD.values(), ids=UPWARD)
def test_an_arrow_against_the_order_is_named(tmp_path: pathlib.Path, files: dict[str, str]) -> None:
    write_tree(tmp_path, files)
    code, lines = run_layers(tmp_path)
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith(next(iter(files)))


def test_a_circle_between_files_of_one_folder_is_named(tmp_path: pathlib.Path) -> None:
    core = "shmreplay/core/write"
    write_tree(
        tmp_path,
        {
            f"{core}/a.h": '#include "write/b.h"\n',
            f"{core}/b.h": "",
            f"{core}/b.cc": '#include "a.h"\n#include "b.h"\n',
        },
    )
    assert run_layers(tmp_path) == (1, [f"a circle: {core}/a, {core}/b"])


def test_the_picture_is_drawn_and_then_kept(tmp_path: pathlib.Path) -> None:
    page = "# A page\n\n<!-- layers begin -->\nold\n<!-- layers end -->\n\nThe rest.\n"
    core = "shmreplay/core"
    write_tree(
        tmp_path,
        {
            "ARCHITECTURE.md": page,
            f"{core}/read/gather.h": '#include "arena/hold.h"\n#include "base/word.h"\n',
            f"{core}/arena/hold.h": '#include "base/word.h"\n',
            f"{core}/base/word.h": "",
        },
    )
    code, lines = run_layers(tmp_path)
    assert (code, len(lines)) == (1, 1)
    assert "make layers" in lines[0]
    assert run_layers(tmp_path, "--write") == (0, [])
    assert run_layers(tmp_path) == (0, [])
    text = (tmp_path / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert 'read["read"] --> arena["arena"]' in text
    assert 'arena["arena"] --> base["base"]' in text
    assert 'read["read"] --> base["base"]' not in text  # over arena, so the picture leaves it out
    assert "old" not in text
    assert text.endswith("The rest.\n")
