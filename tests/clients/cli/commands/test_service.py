"""shmreplayd as a service: what `shmreplay service install` writes, and what systemd makes of it."""

import errno
import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest

import shmreplay as sr
from shmreplay.clients.cli.commands import service
from shmreplay.clients.cli.main import main
from shmreplay.daemon.config.configuration import read_config

SYSTEM = sorted(service.SYSTEM_FILES.values())
EXPOSURE = 1.0  # what `systemd-analyze security` says: 0 is the best, 10 the worst; docs/operations.md has it, too
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


Install = Callable[..., tuple[int, str, str]]


@pytest.fixture
def install(capsys: pytest.CaptureFixture[str]) -> Install:
    """Runs `shmreplay service install`: its exit code, what it printed, what it said on stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["service", "install", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def below(root: pathlib.Path) -> list[str]:
    """The files there, as if it were /."""
    return sorted(f"/{path.relative_to(root)}" for path in root.rglob("*") if path.is_file())


@pytest.fixture
def root(tmp_path: pathlib.Path, install: Install) -> pathlib.Path:
    """Where the files of the machine's service have been installed."""
    code, printed, said = install("--system", "--root", str(tmp_path))
    assert (code, said) == (0, "")
    written = re.findall(r"^new +(/.*)$", printed, re.MULTILINE)
    assert written == [f"{tmp_path}{path}" for path in service.SYSTEM_FILES.values()]
    assert "next:\n    systemd-sysusers\n" in printed
    return tmp_path


def test_all_files_of_a_service_are_written_and_name_the_program(root: pathlib.Path) -> None:
    assert below(root) == SYSTEM
    texts = [(root / path.lstrip("/")).read_text(encoding="utf-8") for path in SYSTEM]
    assert [text for text in texts if re.search("@[A-Z]+@", text)] == []
    unit = (root / "etc/systemd/system/shmreplayd.service").read_text(encoding="utf-8")
    (program, arguments) = re.findall(r"^ExecStart=(\S+) (.*)$", unit, re.MULTILINE)[0]
    assert arguments == "--config /etc/shmreplay/shmreplayd.toml"
    assert unit.count(program) == 1  # not in the comments
    ran = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert ran.stdout == f"shmreplayd {sr.__version__}\n"


def test_installing_again_writes_units_anew_and_keeps_the_configuration(root: pathlib.Path, install: Install) -> None:
    for name in ("systemd/system/shmreplayd.service", "shmreplay/shmreplayd.toml"):
        with open(root / "etc" / name, "a", encoding="utf-8") as file:
            file.write("# mine\n")
    found = json.loads(install("--system", "--root", str(root), "--json")[1])
    assert {os.path.basename(file["path"]): file["state"] for file in found["files"]} == {
        "shmreplayd.service": "changed",
        "shmreplayd.socket": "same",
        "shmreplay.conf": "same",
        "shmreplayd.toml": "kept",
    }
    assert "# mine" not in (root / "etc/systemd/system/shmreplayd.service").read_text(encoding="utf-8")
    assert "# mine" in (root / "etc/shmreplay/shmreplayd.toml").read_text(encoding="utf-8")
    assert below(root) == SYSTEM


def test_a_dry_run_shows_all_and_writes_nothing(tmp_path: pathlib.Path, install: Install) -> None:
    code, printed, said = install("--system", "--dry-run", "--root", str(tmp_path))
    assert (code, said, below(tmp_path)) == (0, "", [])
    for path in SYSTEM:
        assert f"--- {tmp_path}{path} (new)\n" in printed
    assert "WatchdogSec=30\n" in printed


@pytest.mark.parametrize(
    ("uid", "flag", "place"), [(0, "--system", "etc/sysusers.d"), (1000, "--user", "/systemd/user")]
)
def test_a_dry_run_of_nobody_s_shows_the_one_that_fits_and_says_which(
    tmp_path: pathlib.Path, install: Install, monkeypatch: pytest.MonkeyPatch, uid: int, flag: str, place: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    code, printed, said = install("--dry-run", "--root", str(tmp_path))
    assert (code, below(tmp_path)) == (0, [])
    assert said.startswith(f"shmreplay service: this is what {flag} would write")
    assert place in printed


def test_an_installation_of_nobody_s_is_refused(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["service", "install", "--root", str(tmp_path)])
    assert (exited.value.code, below(tmp_path)) == (2, [])
    assert "say which service: --system or --user" in capsys.readouterr().err


@pytest.fixture
def own(tmp_path: pathlib.Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where the files of a user's own service have been installed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{tmp_path}/config")
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/state")
    code, _, said = install("--user")
    assert (code, said) == (0, "")
    return tmp_path


def test_a_users_own_service_goes_where_its_systemd_looks(own: pathlib.Path) -> None:
    assert below(own / "config") == [
        "/shmreplay/shmreplayd.toml",
        "/systemd/user/shmreplayd.service",
        "/systemd/user/shmreplayd.socket",
    ]
    config = read_config(["--config", f"{own}/config/shmreplay/shmreplayd.toml"], {})
    assert (config.group_id, config.keep_tables, config.restore) == (None, True, True)
    assert config.checkpoints.directory == f"{own}/state/shmreplay"


def test_a_program_that_a_service_cannot_see_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, install: Install
) -> None:
    monkeypatch.setattr(service, "HOMES", (str(tmp_path / "home"),))
    inside, outside = tmp_path / "home" / "shmreplayd", tmp_path / "shmreplayd"
    inside.parent.mkdir()
    for script, interpreter in ((inside, "/usr/bin/python3"), (outside, str(tmp_path / "home" / "bin" / "python"))):
        script.write_text(f"#!{interpreter}\n", encoding="utf-8")
        script.chmod(0o755)
        code, printed, said = install("--program", str(script), "--system")
        refusal = rf"{tmp_path}/home/.* lies in {tmp_path}/home, which a .*\n"
        assert (code, printed) == (1, "")
        assert re.fullmatch(f"shmreplay service: {refusal}", said)
        code, printed, said = install("--dry-run", "--program", str(script), "--system")
        assert code == 0
        assert re.fullmatch(f"shmreplay service: without --dry-run this is an error: {refusal}", said)
        assert f"\nExecStart={script} --config " in printed
        (remark,) = json.loads(install("--dry-run", "--program", str(script), "--system", "--json")[1])["remarks"]
        assert remark in said
        code, printed, _ = install("--dry-run", "--program", str(script), "--user")
        assert code == 0
        assert f"\nExecStart={script} --config " in printed


def test_a_user_who_may_not_write_there_gets_one_line(tmp_path: pathlib.Path, install: Install) -> None:
    (tmp_path / "etc").write_text("no directory", encoding="utf-8")
    code, _, said = install("--system", "--root", str(tmp_path))
    assert (code, len(said.splitlines())) == (1, 1)
    assert said.startswith(f"shmreplay service: {tmp_path}/etc/systemd/system")
    assert said.endswith(": Not a directory\n")


def test_a_user_who_is_not_root_is_told_what_to_do(
    tmp_path: pathlib.Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/etc/systemd")

    monkeypatch.setattr(os, "makedirs", refused)
    code, _, said = install("--system", "--root", str(tmp_path))
    assert (code, said) == (
        1,
        f"shmreplay service: {tmp_path}/etc/systemd/system/shmreplayd.service cannot be written: Permission denied; "
        "run it as root (sudo), or install one of your own (--user). --dry-run prints what would be written\n",
    )


@pytest.mark.parametrize(("path", "escaped"), [("/a/b", "/a/b"), ("/a b/c", '"/a b/c"'), ("/100%/$x", "/100%%/$$x")])
def test_odd_paths_are_written_as_systemd_reads_them(path: str, escaped: str) -> None:
    assert service._escaped(path) == escaped


# --- systemd's own opinion --------------------------------------------------------------------------------------------


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_units(root: pathlib.Path, own: pathlib.Path) -> None:
    for flags, folder in (((), root / "etc/systemd/system"), (("--user",), own / "config/systemd/user")):
        units = [str(folder / name) for name in ("shmreplayd.service", "shmreplayd.socket")]
        env = {**os.environ, "XDG_RUNTIME_DIR": str(own)}
        command = ["systemd-analyze", "verify", "--man=no", *flags, *units]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@needs_systemd
def test_a_service_of_the_machine_is_exposed_as_little_as_the_page_says(root: pathlib.Path) -> None:
    unit = str(root / "etc/systemd/system/shmreplayd.service")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for shmreplayd.service: ([0-9.]+)", ran.stdout)
    assert found is not None, ran.stdout + ran.stderr
    assert float(found[1]) <= EXPOSURE
    page = pathlib.Path(__file__).parents[4].joinpath("docs", "operations.md").read_text(encoding="utf-8")
    assert f"exposure of {EXPOSURE}" in page
