"""The console script shmreplay: what it prints, its exit codes, one clear line for every error."""

import errno
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pytest

import shmreplay as sr
from shmreplay import _core
from shmreplay.clients.cli.main import _in_words
from tests.support.daemons import DaemonProcess, Script, StartDaemon, is_asleep, table
from tests.support.waiting import eventually

MODULE = "shmreplay.clients.cli.main"


def shmreplay(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", MODULE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def test_the_version_is_that_of_the_package() -> None:
    ran = shmreplay("--version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"shmreplay {sr.__version__}\n", "")


def test_without_a_subcommand_there_is_a_usage_error() -> None:
    ran = shmreplay()
    assert ran.returncode == 2
    assert "COMMAND" in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (MODULE, "doctor", "--json"),
        (MODULE, "doctor", "--why"),
        (MODULE, "service", "install", "--user", "--dry-run"),
        (MODULE, "--help"),
        ("shmreplay.daemon", "--check-config"),
        ("shmreplay.daemon", "--help"),
    ],
    ids=" ".join,
)
def test_a_closed_pipe_ends_the_output_without_a_message(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        command = [sys.executable, "-m", *arguments]
        env = {**os.environ, "PYTHONUNBUFFERED": ""}  # else argparse itself finds out, says nothing, and returns 0
        ran = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, text=True, check=False, cwd="/", env=env)
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGPIPE, "")


def test_problems_that_nobody_reads_further_end_it_without_a_word(tmp_path: pathlib.Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "shmreplay.daemon", "--config", str(tmp_path / "none.toml")]
    with os.fdopen(writer, "wb") as nobody:
        ran = subprocess.run(command, stderr=nobody, stdout=subprocess.PIPE, text=True, check=False, cwd="/")
    assert (ran.returncode, ran.stdout) == (128 + signal.SIGPIPE, "")


def test_tables_are_listed(daemon: DaemonProcess) -> None:
    arguments = ("tables", "--address", daemon.socket)
    assert shmreplay(*arguments).stdout == "no tables\n"
    with daemon.connect() as client:
        client.create_tables([table("replay"), table("b", max_size=7, arena="shared")])
    ran = shmreplay(*arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.split() for line in ran.stdout.splitlines()] == [
        ["table", "max_size", "size", "inserts", "samples", "deletes", "arena"],
        ["b", "7", "0", "0", "0", "0", "shared"],
        ["replay", "1000", "0", "0", "0", "0", "replay"],
    ]
    listed = json.loads(shmreplay(*arguments, "--json").stdout)
    assert listed["b"]["arena"] == "shared"
    assert listed["b"]["spec"]["max_size"] == 7


def test_stats_are_shown(daemon: DaemonProcess) -> None:
    arguments = ("stats", "--address", daemon.socket)
    with daemon.connect() as client:
        client.create_tables([table("replay")])
        client._attach("replay")
        ran = shmreplay(*arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    first, header, row = ran.stdout.splitlines()
    assert f"pid {daemon.pid}, instance {daemon.instance}" in first
    assert "2 clients, 1 attached process, 0 deaths seen" in first
    assert header.split() == ["arena", "tables", "memory", "huge", "sessions", "state"]
    assert row.split()[:2] == ["replay", "1"]
    assert row.split()[-2:] == ["1", "healthy"]
    shown = json.loads(shmreplay(*arguments, "--json").stdout)
    assert shown["daemon"]["pid"] == daemon.pid
    assert shown["arenas"]["replay"]["index_bytes"] > 0
    assert shown["arenas"]["replay"]["huge_bytes"] >= 0


def test_the_doctor_says_what_the_machine_gives_and_what_to_do_about_less(tmp_path: pathlib.Path) -> None:
    ran = shmreplay("doctor")
    assert (ran.returncode, ran.stderr) == (0, "")
    found = {line.partition(":")[0]: line for line in ran.stdout.splitlines() if not line.startswith(" ")}
    assert list(found) == ["lock", "kernel", "/proc", "Python", "segments", "cgroup", "overcommit", "huge pages",
        "hugetlb", "memory nodes", "locked memory", "open files", "file size", "address space", "mappings", "logout",
        "container", "GPUs"]  # fmt: skip
    assert " free, by " in found["segments"]
    assert ("none: " in found["huge pages"]) == ("huge=within_size,size=16g tmpfs DIR" in ran.stdout)
    shown = json.loads(shmreplay("doctor", "--directory", "/dev/shm", "--json").stdout)
    assert [finding["about"] for finding in shown] == list(found)
    for finding in shown:
        assert finding["why"]
        assert (finding["remedy"] is not None) == (f"{'':<16}-> {finding['remedy']}\n" in ran.stdout)
        assert (f"{'':<16}{finding['why']}\n" in ran.stdout) == (finding["remedy"] is not None)
    refused = shmreplay("doctor", "--directory", str(tmp_path / "none"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"the directory for segments {tmp_path}/none does not exist" in refused.stderr


def test_stats_tell_of_a_damaged_index(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        client.create_tables([table("replay")])
        index = next(name for name in daemon.segments() if name.endswith(".index"))
        mark_failed(daemon.store.path(index))
        assert client.stats()["arenas"]["replay"]["stats"]["failed"]
        assert shmreplay("stats", "--address", daemon.socket).stdout.endswith(" failed: its index is damaged\n")


def mark_failed(path: str) -> None:
    """Marks an index as damaged, as a client does that finds damage. A copy shows where the mark is."""
    with open(path, "r+b") as segment, tempfile.TemporaryFile() as copy:
        copy.write(segment.read())
        copy.flush()
        for offset in range(0, 4096, 4):
            os.pwrite(copy.fileno(), b"\1", offset)
            if _core.inspect_header(copy.fileno())["failed"]:
                os.pwrite(segment.fileno(), b"\1", offset)
                return
            os.pwrite(copy.fileno(), os.pread(segment.fileno(), 1, offset), offset)
    pytest.fail("no byte of the header is the mark")


@pytest.mark.long
def test_stats_tell_of_the_last_checkpoint_and_of_what_failed_since(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    daemon = make_daemon().start("--checkpoint-dir", str(tmp_path / "saved"))
    arguments = ("stats", "--address", daemon.socket)
    with daemon.connect() as client:
        assert client.stats()["daemon"]["checkpoint"] is None
        client.create_tables([table("replay")])
        path = client.checkpoint()
        assert re.match(
            rf"checkpoint: {path}, [0-9.]+ KiB, saved [0-9]+ s ago$", shmreplay(*arguments).stdout.splitlines()[1]
        )
        client.drop_table("replay")
        with pytest.raises(sr.CheckpointFailed):
            client.checkpoint()
        found = client.stats()["daemon"]["checkpoint"]
        assert (found["path"], found["error"]) == (path, "no checkpoint was saved: there are no tables")
        assert found["saved_s_ago"] >= found["failed_s_ago"] >= 0
    assert re.search(
        "; a save failed [0-9]+ s ago: no checkpoint was saved: there are no tables$",
        shmreplay(*arguments).stdout.splitlines()[1],
    )
    assert re.search("ERROR a checkpoint that .* asked for failed: no checkpoint was saved: there are", daemon.log())


@pytest.mark.parametrize("subcommand", ["tables", "stats"])
def test_without_a_daemon_there_is_one_clear_line(subcommand: str, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "none.sock")
    ran = shmreplay(subcommand, "--address", path, "--timeout", "0")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith(f"shmreplay {subcommand}: no shmreplayd answered ({path}: No such file or directory)")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "{}"), "shmreplay inspect: there is no checkpoint {}: no such file or directory"),
        (("verify", "{}"), "shmreplay verify: there is no checkpoint {}: no such file or directory"),
    ],
)
def test_a_file_that_is_not_there_is_named_before_the_reason(
    arguments: tuple[str, str], said: str, tmp_path: pathlib.Path
) -> None:
    path = str(tmp_path / "none")
    ran = shmreplay(*(part.format(path) for part in arguments))
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", said.format(path) + "\n")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOENT, "No such file or directory", "a", None, "b"), "a to b: No such file or directory"),
        (PermissionError(errno.EACCES, "Permission denied", b"a"), "a: Permission denied; run it as a user who may"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("x cannot be written: why"), "x cannot be written: why"),
        (ValueError("as it is"), "as it is"),
    ],
)
def test_an_error_of_the_system_is_told_in_words(error: Exception, said: str) -> None:
    assert _in_words(error) == said


def test_a_misspelt_command_is_answered_with_the_one_that_is_meant() -> None:
    ran = shmreplay("pek")
    assert ran.returncode == 2
    assert ran.stderr.endswith("shmreplay: error: there is no command 'pek'; did you mean 'peek'?\n")
    assert "there is no command 'xyz'; shmreplay has demo, top, tables," in shmreplay("xyz").stderr


def test_a_plan_shows_every_term() -> None:
    ran = shmreplay("plan", "--max-size", "100000", "--column", "observation=uint8[84, 84]", "--column", "action=int64")
    assert (ran.returncode, ran.stderr) == (0, "")
    for part in ("arena 'table'", "100000 items", "open streams", "reserve", "index", "total", "7064 B as given"):
        assert part in ran.stdout
    found = json.loads(shmreplay("plan", "--max-size", "10", "--column", "a=float32", "--json").stdout)
    assert found["total_bytes"] == found["index_bytes"] + found["data_bytes"]
    assert found["row_bytes"] == 4


CONFIG = """
[tables.replay]
max_size = 1000
columns = { observation = { dtype = "uint8", shape = [84, 84] }, action = "int64" }
item = { kind = "NStep", n = 3, summed = [] }
rate_limiter = { kind = "MinSize", min_size_to_sample = 2000 }
[tables.demonstrations]
max_size = 100
columns = { x = "float32" }
"""


def test_a_plan_of_a_file_shows_all_its_arenas(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(CONFIG, encoding="utf-8")
    ran = shmreplay("plan", str(path))
    assert ran.returncode == 0
    for part in ("arena 'replay'", "arena 'demonstrations'", "1000 items: 4000 steps", "7064 B as given", "2 arenas: "):
        assert part in ran.stdout
    (warning,) = ran.stderr.splitlines()
    assert warning == (
        "shmreplay plan: warning: table 'replay': min_size_to_sample is 2000, more than max_size 1000: "
        "sampling never starts"
    )
    found = json.loads(shmreplay("plan", str(path), "--json").stdout)
    assert [arena["name"] for arena in found["arenas"]] == ["replay", "demonstrations"]
    assert found["total_bytes"] == sum(arena["total_bytes"] for arena in found["arenas"])


def test_a_file_that_cannot_be_is_one_clear_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(CONFIG.replace("1000", "0", 1), encoding="utf-8")
    text = f"shmreplay plan: {path}:3: tables.replay: max_size is 0; expected an integer in 1..2147483646\n"
    ran = shmreplay("plan", str(path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", text)
    missing = shmreplay("plan", str(tmp_path / "none.toml"))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == f"shmreplay plan: {tmp_path / 'none.toml'}: No such file or directory\n"


@pytest.mark.long
def test_a_plan_of_another_remover_needs_more() -> None:
    def total(*options: str) -> int:
        ran = shmreplay(
            "plan", "--max-size", "100000", "--column", "a=float32[100]", "--item-steps", "4", "--json", *options
        )
        return int(json.loads(ran.stdout)["total_bytes"])

    assert total("--remover", "uniform") > 2 * total()
    assert total("--capacity-steps", "1000") < total()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--max-size", "0", "--column", "a=int64"], "max_size is 0; expected an integer in 1.."),
        (["--max-size", "9"], "--column is missing; give it, or a CONFIG file that declares tables"),
        (["--column", "a=int64"], "--max-size is missing; give it, or a CONFIG file that declares tables"),
        (["f.toml", "--chunk-steps", "9"], "--chunk-steps describes one table; f.toml declares its own"),
        (["--max-size", "9", "--column", "a"], "--column a: expected NAME=DTYPE or NAME=DTYPE[SHAPE]"),
        (["--max-size", "9", "--column", "a=nothing"], "--column a=nothing: dtype 'nothing' is not known to numpy"),
        (["--max-size", "9", "--column", "a=object"], "--column a=object: dtype object cannot be a column"),
    ],
)
def test_a_plan_that_cannot_be_is_one_clear_line(arguments: list[str], reason: str) -> None:
    ran = shmreplay("plan", *arguments)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert reason in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("size", ["1e6", "1_000_000", "1000000.0"])
def test_a_count_may_be_written_as_people_write_it(size: str) -> None:
    options = ("--column", "a=int64", "--json")
    assert shmreplay("plan", "--max-size", size, *options).stdout == (
        shmreplay("plan", "--max-size", "1000000", *options).stdout
    )


@pytest.mark.parametrize("size", ["1.5", "many", "inf", "nan"])
def test_a_count_that_is_no_whole_number_is_a_usage_error(size: str) -> None:
    ran = shmreplay("plan", "--max-size", size, "--column", "a=int64")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"argument --max-size: {size!r} is no whole number; expected one such as 1000000, 1_000_000 or" in ran.stderr


@pytest.mark.long
def test_the_daemons_socket_is_named_alike_in_both_programs(make_daemon: StartDaemon) -> None:
    daemon = make_daemon()
    wanted, daemon.socket = daemon.socket, daemon.socket + ".other"
    daemon.start("--address", wanted)  # behind DaemonProcess' own --socket; the last one counts
    daemon.socket = wanted
    for option in ("--address", "--socket"):
        assert shmreplay("tables", option, wanted).stdout == "no tables\n"


def test_a_ctrl_c_ends_it_with_code_130(daemon: DaemonProcess, run_script: Callable[..., Script]) -> None:
    daemon.signal(signal.SIGSTOP)
    script = run_script(
        f"import sys\nfrom {MODULE} import main\nprint('waiting', flush=True)\nsys.exit(main(sys.argv[1:]))",
        "tables",
        "--address",
        daemon.socket,
        "--timeout",
        "1000",
    )
    script.line()
    eventually(lambda: is_asleep(script.pid))
    os.kill(script.pid, signal.SIGINT)
    assert script.finish() == (130, "", "")
    daemon.signal(signal.SIGCONT)
