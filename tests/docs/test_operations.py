"""What docs/operations.md says of sizes, containers, backups, alerts and errors is so."""

import ast
import functools
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import yaml

from shmreplay.base.host_memory import show_bytes
from shmreplay.clients.cli.main import main
from shmreplay.daemon.config.configuration import read_config
from shmreplay.estimates import Estimate, estimate
from shmreplay.tables.plan import by_arena
from shmreplay.tables.table_config import read_tables
from tests.daemon.monitoring.test_monitoring import RULES
from tests.docs.test_docs import PAGES
from tests.support.daemons import StartDaemon, table
from tests.support.repository import ROOT
from tests.support.waiting import WAIT_S

PAGE = PAGES["operations.md"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def part(title: str) -> str:
    """The text under a heading."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


# --- sizes -----------------------------------------------------------------------------------------------------------


def num_bytes(shown: str) -> float:
    number, unit = shown.split()
    return float(number) * {"MiB": 2**20, "GiB": 2**30}[unit]


def planned(config: str, path: pathlib.Path) -> Estimate:
    path.write_text(config, encoding="utf-8")
    [tables] = by_arena(read_tables(str(path))).values()
    return estimate(tables)


def test_the_sizes_are_what_plan_says(tmp_path: pathlib.Path) -> None:
    rows = re.findall(r"^\| ([A-Z])\. .* \| (\S+ .iB) \| (\S+ .iB) \| (\S+ .iB) \|$", PAGE, re.MULTILINE)
    configs = {block[2]: block for block in blocks("toml")}
    assert [row[0] for row in rows] == sorted(configs)
    for name, data, index, total in rows:
        found = planned(configs[name], tmp_path / f"{name}.toml")
        for shown, exact in ((data, found.data_bytes), (index, found.index_bytes), (total, found.total_bytes)):
            assert num_bytes(shown) == pytest.approx(exact, rel=0.05), (name, shown, show_bytes(exact))


def test_the_formula_gives_what_plan_says(tmp_path: pathlib.Path) -> None:
    for config in blocks("toml"):
        found = planned(config, tmp_path / "tables.toml")
        [term] = found.terms
        chunks = -(-term.steps // found.chunk_steps) * term.fragmentation
        chunks += found.max_streams * (-(-found.history // found.chunk_steps) + 2) + found.reserve_chunks
        data = chunks * found.chunk_bytes + found.heap.num_bytes
        assert data == pytest.approx(found.data_bytes, rel=0.01)
        index = 135 * term.max_size + 64 * chunks + 16 * found.heap.num_blocks + 1024 * 1024 + 1.4 * 2**20
        assert index == pytest.approx(found.index_bytes, rel=0.1)


# --- containers ------------------------------------------------------------------------------------------------------


def daemon_commands() -> list[list[str]]:
    compose, pod = (yaml.safe_load(block) for block in blocks("yaml"))
    return [compose["services"]["shmreplayd"]["command"], pod["spec"]["containers"][0]["args"]]


def test_the_manifests_share_what_has_to_be_shared() -> None:
    compose, pod = (yaml.safe_load(block) for block in blocks("yaml"))
    owner, actor = compose["services"]["shmreplayd"], compose["services"]["actor"]
    assert owner["ipc"] == "shareable"
    assert actor["ipc"] == actor["pid"] == "service:shmreplayd"
    assert set(actor["volumes"]) < set(owner["volumes"])
    assert pod["spec"]["shareProcessNamespace"] is True
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    for container in pod["spec"]["containers"]:
        places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert places.keys() <= volumes.keys()
        assert (places["shm"], places["socket"]) == ("/dev/shm", "/run/shmreplay")


@pytest.mark.parametrize("number", range(2))
def test_the_manifests_daemons_are_told_what_they_know(number: int, tmp_path: pathlib.Path) -> None:
    program, *flags = daemon_commands()[number]
    assert program == "shmreplayd"
    here = [
        flag.replace("/run/shmreplay", str(tmp_path)).replace("/var/lib/shmreplay", str(tmp_path)) for flag in flags
    ]
    here = [flag.replace("--group=shmreplay", "--group=root") for flag in here]
    config = read_config(here, {})
    assert config.checkpoints.at_stop
    assert config.restore


# --- backups ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_drill_restores_a_copy_beside_the_daemon_that_works(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    saved, copy = tmp_path / "saved", tmp_path / "copy"
    daemon = make_daemon().start("--checkpoint-dir", str(saved))
    with daemon.connect() as client:
        client.create_tables([table()])
        for _ in range(2):
            client.table("replay").insert({"x": np.zeros(3, np.float32), "n": 7})
            client.checkpoint()
        [rsync] = re.findall(r"^    rsync .*$", part("Backups"), re.MULTILINE)
        copy.mkdir()
        for file in saved.iterdir():  # what rsync would do, which need not be there
            if not any(file.match(pattern) for pattern in re.findall(r"--exclude='(.*?)'", rsync)):
                (copy / file.name).write_bytes(file.read_bytes())
        assert [file.suffix for file in copy.iterdir()] == [".checkpoint"] * 2
        [drill] = re.findall(r"(?:^    shmreplay.*\n)+    kill \$!.*", part("Backups"), re.MULTILINE)
        script = drill.replace("/srv/shmreplay", str(copy)).replace("/tmp/drill.sock", str(tmp_path / "drill.sock"))
        script = script.replace("--instance drill", f"--instance drill-{os.getpid()}")
        programs = tmp_path / "bin"
        programs.mkdir()
        for name, module in (("shmreplay", "shmreplay.clients.cli.main"), ("shmreplayd", "shmreplay.daemon")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["sh", "-euc", f"{script}\nwait"],
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * WAIT_S,
            cwd="/",
            env={**os.environ, "PATH": path},
        )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^replay .* 2", ran.stdout, re.MULTILINE), ran.stdout


# --- alerts and errors -----------------------------------------------------------------------------------------------


def test_every_alert_is_explained() -> None:
    explained = re.findall(r"^\| `(ShmReplay\w+)` \|", part("Alerts"), re.MULTILINE)
    assert explained == [rule["alert"] for rule in RULES]


def text_of(node: ast.AST) -> str | None:
    """A string of the source, with … for what is put into it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[-\d.]*[a-z]", "…", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "…" for part in node.values)
    return None


@functools.cache
def texts() -> str:
    """All strings of the package, a line each."""
    found = []
    for folder in ("shmreplay", "daemon", "clients"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (text := text_of(node)) is not None:
                    found.append(text.replace("\n", " "))
    told_by_the_core = (
        "binding/status_error.h",
        "core/arena/arena.cc",
        "core/base/host_identity.cc",
        "core/base/limits.cc",
    )
    for name in told_by_the_core:
        found += re.findall(r'"([^"]*)"', (ROOT / "shmreplay" / name).read_text(encoding="utf-8"))
    return "\n".join(found)


def test_the_errors_that_are_explained_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([^`]+)`", part("What to do when"), re.MULTILINE)
    assert len(rows) >= 30
    for quoted in rows:
        pieces = [re.escape(piece) for piece in re.split(r" ?\.\.\. ?", quoted) if piece]
        assert re.search(".*?".join(pieces), texts()), quoted


def test_the_commands_that_are_named_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    named = set(re.findall(r"`shmreplay ([a-z-]+)|^    (?:\S+/)?shmreplay ([a-z-]+)", PAGE, re.MULTILINE))
    for command in {first or second for first, second in named}:
        assert re.search(rf"\b{command}\b", known), command
