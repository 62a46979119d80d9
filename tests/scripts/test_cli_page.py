"""docs/cli.md: it is what the programs take."""

import pathlib
import subprocess
import sys

from shmreplay.clients.cli.commands.catalogue import SUBCOMMANDS, build_parser
from shmreplay.clients.cli.terminal.grammar import read_parser
from shmreplay.daemon.config.configuration import build_parser as build_daemon_parser
from tests.support.repository import ROOT


def test_the_page_is_as_the_code_is() -> None:
    script = str(ROOT / "scripts" / "cli_page.py")
    ran = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, cwd="/")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_command_says_what_it_and_its_options_are_for() -> None:
    program = read_parser(build_parser())
    assert [command.name for command in program.commands] == [f"shmreplay {name}" for name in SUBCOMMANDS]
    for command in program.commands:
        assert command.help
        for part in (command, *command.commands):
            assert all(option.help for option in part.options), part.name


def test_every_option_of_the_daemon_is_on_the_page() -> None:
    of_the_daemon = (ROOT / "docs" / "cli.md").read_text().split("\n## The daemon\n")[1]
    for option in read_parser(build_daemon_parser()).options:
        assert all(f"`{flag}`" in of_the_daemon for flag in option.flags if flag != "-h"), option.flags


def test_the_page_is_not_said_to_be_current_when_it_is_not(tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "scripts" / "cli_page.py"
    copy.parent.mkdir()
    copy.write_text((ROOT / "scripts" / "cli_page.py").read_text())
    (tmp_path / "docs").mkdir()
    page = (ROOT / "docs" / "cli.md").read_text()
    (tmp_path / "docs" / "cli.md").write_text(page.replace("--json", "--jason"))
    command = [sys.executable, str(copy)]
    stale = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False, cwd="/")
    assert (stale.returncode, stale.stderr) == (1, "docs/cli.md is not as the code is: run `make cli-page`\n")
