"""`shmreplay completion`: the scripts, run by the shells that are installed."""

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.cli.commands.catalogue import SUBCOMMANDS
from shmreplay.clients.cli.main import main


@pytest.fixture(scope="module")
def server() -> Iterator[sr.Server]:
    options: Any = {"max_streams": 2, "max_sessions": 4}
    with sr.Server(
        [sr.Table(name, {"x": np.float32(0)}, 5, **options) for name in ("replay", "recent", "other")]
    ) as server:
        yield server


@pytest.fixture
def env(server: sr.Server, tmp_path: pathlib.Path) -> dict[str, str]:
    """Of a shell that finds the program and the daemon, in a directory with one file."""
    program = tmp_path / "bin" / "shmreplay"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m shmreplay.clients.cli.main "$@"\n')
    program.chmod(0o755)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "saved.npz").touch()
    path = f"{program.parent}:{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "SHMREPLAY_SOCKET": server.address, "PWD": str(tmp_path / "here")}


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def in_bash(script: str, words: list[str], env: dict[str, str]) -> set[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shmreplay; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    ran = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{asked}"],
        capture_output=True, text=True, check=False, cwd=env["PWD"], env=env,
    )  # fmt: skip
    assert ran.stderr == ""
    return set(ran.stdout.split())


CASES = [
    (["shmreplay", ""], {*SUBCOMMANDS, "--help", "--version"}),
    (["shmreplay", "exp"], {"export"}),
    (["shmreplay", "peek", "re"], {"replay", "recent"}),
    (["shmreplay", "peek", "--json", "-n", "3", "o"], {"other"}),
    (["shmreplay", "peek", "replay", ""], set()),
    (["shmreplay", "histogram", "replay", ""], {"priority", "age", "times_sampled"}),
    (["shmreplay", "histogram", "replay", "--b"], {"--bins"}),
    (["shmreplay", "histogram", "--bins", ""], set()),
    (["shmreplay", "import", "replay", ""], {"saved.npz"}),
    (["shmreplay", "export", "replay", "--to", "s"], {"saved.npz"}),
    (["shmreplay", "export", "--to", "x.npz", "rec"], {"recent"}),
    (["shmreplay", "drop", "other", "re"], {"replay", "recent"}),
    (["shmreplay", "completion", ""], {"bash", "zsh", "fish"}),
    (["shmreplay", "service", ""], {"install", "--help"}),
    (["shmreplay", "service", "install", "--dry"], {"--dry-run"}),
    (["shmreplay", "verify", "sav"], {"saved.npz"}),
    (["shmreplay", "nonsense", ""], set()),
]  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.long
def test_bash_offers_commands_options_choices_tables_and_files(
    env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_of("bash", capsys)
    for words, offered in CASES:
        assert in_bash(script, words, env) == offered, words


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.long
def test_tables_are_those_of_the_daemon_that_the_line_names(
    env: dict[str, str], server: sr.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    script, elsewhere = script_of("bash", capsys), {**env, "SHMREPLAY_SOCKET": "/nowhere/shmreplay.sock"}
    assert in_bash(script, ["shmreplay", "peek", ""], elsewhere) == set()
    named = ["shmreplay", "peek", "--address", server.address, "rep"]
    assert in_bash(script, named, elsewhere) == {"replay"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_takes_the_script(env: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    script = f"autoload -U compinit && compinit -u -D\n{script_of('zsh', capsys)}"
    for words, offered in CASES[:8]:  # as zsh calls functions that are for bash
        quoted = " ".join(f"'{word}'" for word in words)
        asked = f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shmreplay; print -l -- "${{COMPREPLY[@]}}"'
        source = f"{script}\nprint $_comps[shmreplay]\n() {{ emulate -L sh; setopt kshglob; {asked}; }}"
        ran = subprocess.run(
            ["zsh", "-f", "-c", source], capture_output=True, text=True, check=False, cwd=env["PWD"], env=env
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.startswith("_bash_complete -F _shmreplay\n")
        found = ran.stdout.split()[3:]  # of which zsh itself takes those that begin so
        assert {word for word in found if word.startswith(words[-1])} == offered, words


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_offers_the_same(env: dict[str, str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "shmreplay.fish"
    script.write_text(script_of("fish", capsys))
    for line, offered in (
        ("peek re", {"replay", "recent"}),
        ("exp", {"export"}),
        ("histogram replay ti", {"times_sampled"}),
    ):
        ran = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete -C 'shmreplay {line}'"],
            capture_output=True, text=True, check=False, cwd=env["PWD"], env={**env, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (0, "")
        assert offered <= {found.split("\t")[0] for found in ran.stdout.splitlines()}


def test_names_of_tables_are_none_where_no_daemon_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["completion", "tables", "--address", "/nowhere/shmreplay.sock"]) == 0
    assert capsys.readouterr() == ("", "")
